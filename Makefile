# Everything a person runs here by hand. `make help` lists it.
# build.env holds the build tags and C flags; they are exported, so that every go command below sees the same ones.
include build.env
export GOFLAGS CGO_CFLAGS
SHELL := /bin/bash
# A Go that was unpacked to its usual place is found without a change to the PATH, under sudo too.
export PATH := $(PATH):/usr/local/go/bin
TAGS := $(patsubst -tags=%,%,$(GOFLAGS))
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GOBUILD := go build -buildvcs=false -trimpath -ldflags '-X main.version=$(VERSION)'

.DEFAULT_GOAL := help
.PHONY: help setup build run test test-unit test-e2e test-lab bench deb deb-check lint clean clean-test clean-demo need-go

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile
	@scripts/need-go || true

need-go:
	@scripts/need-go

setup: ## check this machine and install what is missing
	@scripts/setup

build: need-go ## bin/gputop, bin/gputopd and the simulated workload bin/simload
	@echo "building $(VERSION)$(if $(wildcard bin/gputopd),, (the first time takes some minutes))"
	@CGO_ENABLED=0 $(GOBUILD) -o bin/gputop ./cmd/gputop
	@CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-s -w' -o bin/simload ./engine/gpu/simgpu/simload
	@CGO_ENABLED=1 $(GOBUILD) -o bin/gputopd ./cmd/gputopd

run: ## set up, build, and show the screen with demo jobs running
	@scripts/setup
	@$(MAKE) --no-print-directory build
	@scripts/demo

test: ## all tests: unit, then end to end; installs what they need first
	@scripts/setup test
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory test-e2e

test-unit: need-go ## the tests that need neither root nor Podman
	go test $(TESTFLAGS) ./...

# The packages are found by their build tag; none is an error, so that a lost tag cannot pass for a green run.
E2E = $(shell grep -rlE --include='*_test.go' '^//go:build .*\be2e\b' . | xargs -r -n1 dirname | sort -u)
# They make accounts. An ordinary user builds them and has sudo run them.
AS_ROOT = $(if $(filter 0,$(shell id -u)),,-exec 'sudo -E')
test-e2e: build ## the tests against real rootless Podman, under test accounts (with sudo)
	@test -n "$(E2E)" || { echo "no end-to-end test was found" >&2; exit 1; }
	go test -tags=$(TAGS),e2e -count=1 -p 1 -timeout 30m $(AS_ROOT) $(TESTFLAGS) $(E2E)

test-lab: need-go ## the package on a real Debian 13 machine with systemd, in a VM; 15 to 25 minutes (as root)
	@scripts/setup lab
	@$(MAKE) --no-print-directory build
	@DEB_VERSION=99.0 packaging/deb && mkdir -p dist/next && rm -f dist/next/* && mv dist/gputop_99.0_*.deb dist/next/
	@$(MAKE) --no-print-directory deb
	@nice -n 5 test/lab/smoke

bench: build ## times of whole commands, beside the disk's and Slurm's where installed
	go run ./test/bench

deb: need-go ## the Debian package, in dist/; DEB_VERSION=1.2.0 sets its version
	@packaging/deb
	@packaging/check dist/gputop_*.deb

deb-check: ## look into the package that make deb left: contents, programs, pages, units
	@packaging/check dist/gputop_*.deb

lint: need-go ## gofmt, go vet, staticcheck; shellcheck where installed
	@scripts/lint $(TAGS)

clean-test: ## remove the test accounts (as root)
	@for a in gputop-test-a gputop-test-b; do scripts/test-account --remove $$a; done

clean: ## remove what was built
	rm -rf bin dist

clean-demo: ## remove all that make run made
	@scripts/clean-demo

//go:build e2e

package cdi

func init() { mustBeRoot = true }

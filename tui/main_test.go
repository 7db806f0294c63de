package tui

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // golden views show local times
	goleak.VerifyTestMain(m)
}

// Package scheduler decides which pending jobs start now, on what, and why the others wait. It is pure: a Snapshot and
// a time go in, a Plan comes out. It must not read a clock, do I/O, use randomness or start goroutines, it never
// changes what it is given, and it imports nothing but the standard library and gputop/engine.
package scheduler

import (
	"time"

	"gputop/engine"
)

// Snapshot is everything a plan depends on besides the policy and the time.
type Snapshot struct {
	Devices []Device
	// DevicesKnown is false while no sample of the GPUs has come: then no job that wants one starts.
	DevicesKnown bool
	// HostCPUs (cores) and HostMemory (bytes) are what jobs may have of the machine together. 0 is unknown: not limited.
	HostCPUs   engine.CPUs
	HostMemory engine.Bytes
	// Held are the allocations that still count: granted, active or releasing.
	Held    []Held
	Pending []Pending
	// Accounts are the quotas that jobs count against.
	Accounts []Account
	// Shares are what owners, by uid, had of the machine so far; who is not there had nothing. nil leaves fair share out.
	Shares map[uint32]Share
	// Preempted are the times of automatic preemptions, for the bound per hour. Older ones do no harm.
	Preempted []time.Time
}

// Account is somebody, or the members of a group together, whose jobs may hold so much at once.
type Account struct {
	// Name follows "the quota of", for example "alice" or "group vision".
	Name  string
	Quota engine.Quota
}

// Window is a time in which a card is promised to people.
type Window struct {
	// Name says whose it is, for a reason: "the course of group vision".
	Name string
	// From is when it begins and To when it ends; a zero To is open.
	From, To time.Time
	// For are the uids it is for, of those with jobs; with Drain it is for nobody.
	For   map[uint32]bool
	Drain bool
}

// shuts says whether a job of somebody, from now until end (zero: unknown), would be in the window's way.
func (w *Window) shuts(who uint32, now, end time.Time) bool {
	return !w.For[who] && (w.To.IsZero() || w.To.After(now)) && (end.IsZero() || end.After(w.From))
}

// Device is one card.
type Device struct {
	ID    engine.DeviceID
	Index int // for order and display
	Model string
	// Usable is total less reserved, in bytes; 0 when the card does not say, and then it can only be given whole.
	Usable engine.Bytes
	// WholeOnly says that it is never shared.
	WholeOnly bool
	// Foreign is what processes outside the queue hold, in bytes.
	Foreign engine.Bytes
	// ForeignBusy says that a process outside the queue makes the card unusable whatever it holds (personal mode).
	ForeignBusy bool
	// Unavailable is empty when the card can be used. BlockedBySize means that in its present form (MIG mode) it never
	// serves a whole or shared request; any other code is something that may pass.
	Unavailable engine.ReasonCode
	// Temperature in degrees Celsius. Of cards that are as good otherwise, a cooler one is taken, by ten degrees.
	Temperature int
	// Near says how well it is connected to others: more is better, and nil is unknown.
	Near map[engine.DeviceID]int
	// Windows are the times in which it is promised to people.
	Windows []Window
}

// Held is an allocation that still counts.
type Held struct {
	Job        engine.JobID
	Owner      uint32
	Class      engine.Class
	Allocation engine.Allocation
	// Actual is what the job's processes really hold per device, in bytes; what is above the promise counts.
	Actual map[engine.DeviceID]engine.Bytes
	// Stopping says that the job was told to stop: its devices are expected free at any moment.
	Stopping bool
	// For is the pending job that it was stopped for: what it frees is that job's and nobody else's. 0 is none.
	For engine.JobID
	// Started is when its program began; zero before.
	Started time.Time
	// Checkpoints says that the job saves its work when it is told to stop, or every CheckpointEvery, so that a later
	// attempt goes on from there.
	Checkpoints     bool
	CheckpointEvery time.Duration
	// Preemptions is how often it was preempted.
	Preemptions int
	// End is when its time limit ends it; zero when unknown.
	End time.Time
	// Accounts are those in Snapshot.Accounts that it counts against.
	Accounts []int
}

// Pending is a job in the queue.
type Pending struct {
	Job     engine.JobID
	Owner   uint32
	Class   engine.Class
	Queued  time.Time
	Request engine.Request
	// TimeLimit bounds an attempt; 0 is none, and such a job never runs ahead of a blocked one it could delay.
	TimeLimit time.Duration
	// NotBefore keeps it out until then.
	NotBefore time.Time
	// Wait keeps it out for a reason outside the scheduler (preparing, held, no agent) and is passed on with WaitDetail.
	Wait       engine.ReasonCode
	WaitDetail string
	// Promised says that jobs were stopped for it: what they freed is kept for it, also once they are gone, and it goes
	// before all others.
	Promised bool
	// Accounts are those in Snapshot.Accounts that it counts against.
	Accounts []int
}

// Plan is what to do now.
type Plan struct {
	// Order is the whole queue, first to run first.
	Order []engine.JobID
	// Start are the jobs to start, in queue order.
	Start []Start
	// Reasons has every pending job that does not start. Free is what was left when its turn came, for a share on the
	// best card that could ever hold it; Until is when the first blocked job can start, where that is known.
	Reasons map[engine.JobID]engine.Reason
	// Preempt are the running jobs to stop, and for whom; in the order of those.
	Preempt []Preempt
	// Estimates are when the first pending jobs should start (Policy.Estimates), where that can be told: from the time
	// limits of what runs and waits, if nothing comes before them in the queue.
	Estimates map[engine.JobID]time.Time
	// Again is when a plan has to be made even if nothing happens until then: a wait passes its threshold. Zero is never.
	Again time.Time
}

// Preempt is a running job to stop, and the pending job that gets its place.
type Preempt struct{ Victim, For engine.JobID }

// Start is one job to start, with what to grant it.
type Start struct {
	Job        engine.JobID
	Allocation engine.Allocation
}

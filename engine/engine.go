// Package engine holds the nouns of gputop: jobs, attempts, allocations, devices, states, reasons and the rules
// that need nothing but them. It imports the standard library only, does no I/O and reads no clock, so that every
// other package can share one vocabulary.
package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// JobID names a job for ever: ids grow by one and are never used again.
type JobID int64

// String is the decimal id, as typed on a command line.
func (id JobID) String() string { return strconv.FormatInt(int64(id), 10) }

// ParseJobID reads a job id as a user types it ("42").
func ParseJobID(s string) (JobID, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("job id %q: want a positive whole number such as 42 (see gputop ls)", s)
	}
	return JobID(n), nil
}

// AttemptID names one try at running a job; Number counts from 1.
type AttemptID struct {
	Job    JobID `json:"job"`
	Number int   `json:"number"`
}

// String is "JOB.NUMBER", for example "42.1".
func (a AttemptID) String() string { return fmt.Sprintf("%d.%d", a.Job, a.Number) }

// ContainerName is the Podman name of an attempt's container. It is stored before the container is created, so a
// create whose answer was lost is found again by name. Instance is the daemon's own random id.
func (a AttemptID) ContainerName(instance string) string {
	return fmt.Sprintf("gputop-%s-%d-%d", instance, a.Job, a.Number)
}

// LeaseName is the device name of an attempt's CDI lease, without the kind.
func (a AttemptID) LeaseName(instance string) string {
	return fmt.Sprintf("%s-%d-%d", instance, a.Job, a.Number)
}

// DeviceID is a device's UUID as NVML prints it: "GPU-…" for a card, "MIG-…" for a MIG device. Never an index.
type DeviceID string

// User is a person on this machine. Both the number and the name identify them: a reused uid is somebody else.
type User struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Name string `json:"name"`
}

// Is says whether two records mean the same person.
func (u User) Is(o User) bool { return u.UID == o.UID && u.Name == o.Name }

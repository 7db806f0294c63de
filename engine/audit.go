package engine

import "time"

// AuditEntry is one line of the audit trail: who did, or was refused, what to which job.
type AuditEntry struct {
	Time time.Time `json:"time"`
	// User and PID are who asked, from the socket's peer credentials.
	User User `json:"user"`
	PID  int  `json:"pid,omitempty"`
	// Action is the permission that was asked for, a word of the table in docs/permissions.md.
	Action string `json:"action"`
	// Job and Owner are 0 and empty where the action is about no job that exists.
	Job   JobID `json:"job,omitempty"`
	Owner User  `json:"owner,omitzero"`
	// Allowed says that it was done; a refused one changed nothing.
	Allowed bool `json:"allowed"`
	// Reason is what the caller gave as reason.
	Reason string `json:"reason,omitempty"`
	// Text is what was changed from what to what, or why it was refused.
	Text string `json:"text,omitempty"`
}

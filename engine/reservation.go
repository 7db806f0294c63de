package engine

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// ReservationID numbers reservations; numbers are never used again.
type ReservationID int64

// String is the number, for example "3".
func (id ReservationID) String() string { return strconv.FormatInt(int64(id), 10) }

// Reservation promises devices to people for a time, or, as a drain, to nobody.
type Reservation struct {
	ID ReservationID `json:"id"`
	// Drain keeps new jobs away, everybody's.
	Drain   bool       `json:"drain,omitempty"`
	Devices []DeviceID `json:"devices"`
	// From is when it begins, To when it ends; a drain may be open, with a zero To.
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
	// Users and Groups are for whom it is.
	Users  []User  `json:"users,omitempty"`
	Groups []Group `json:"groups,omitempty"`
	// Preempt puts jobs of others that still run when it begins back in the queue; else they run on.
	Preempt bool   `json:"preempt,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// By is the admin who made it, at Made.
	By   User      `json:"by"`
	Made time.Time `json:"made"`
}

// Group is a Unix group.
type Group struct {
	Name string `json:"name"`
	GID  uint32 `json:"gid"`
}

// For says whether it is for somebody in these groups.
func (r *Reservation) For(u User, groups []uint32) bool {
	return slices.ContainsFunc(r.Users, func(o User) bool { return o.Is(u) }) ||
		slices.ContainsFunc(r.Groups, func(g Group) bool { return g.GID == u.GID || slices.Contains(groups, g.GID) })
}

// Over says whether it has ended.
func (r *Reservation) Over(now time.Time) bool { return !r.To.IsZero() && !r.To.After(now) }

// Begun says whether its time has come.
func (r *Reservation) Begun(now time.Time) bool { return !r.From.After(now) }

// Overlaps says whether both have a moment in common; each ends before its To.
func (r *Reservation) Overlaps(o *Reservation) bool {
	return (r.To.IsZero() || o.From.Before(r.To)) && (o.To.IsZero() || r.From.Before(o.To))
}

// Whose says for whom it is: "ada, group course", or why nobody gets it.
func (r *Reservation) Whose() string {
	var s string
	add := func(name string) {
		if s != "" {
			s += ", "
		}
		s += name
	}
	if r.Drain {
		s = "drained"
		if r.Reason != "" {
			s += ": " + r.Reason
		}
		return s
	}
	for _, u := range r.Users {
		add(u.Name)
	}
	for _, g := range r.Groups {
		add("group " + g.Name)
	}
	return fmt.Sprintf("reserved for %s", s)
}

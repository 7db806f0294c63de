package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"gputop/engine"
)

// MaxReportDays is the longest time that one report is about.
const MaxReportDays = 3660

// ReportQuery is which days of UTC are asked for, both included.
type ReportQuery struct{ Since, Until time.Time }

// Report says who used how much of the machine, by day and class.
type Report struct {
	Rows []ReportRow `json:"rows"`
}

// ReportRow is what one person's attempts of one class held on one day; what is held now counts until now.
type ReportRow struct {
	Day   string       `json:"day"` // 2026-12-01, of UTC
	User  string       `json:"user"`
	Class engine.Class `json:"class"`
	// GPUSeconds counts a share of a card as its part; GPUMemory is promised memory times time, in byte-seconds; CPUSeconds
	// is cores times time.
	GPUSeconds float64 `json:"gpu_seconds"`
	GPUMemory  float64 `json:"gpu_memory_byte_seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	// Attempts are those that ended on that day, or still run.
	Attempts int `json:"attempts"`
}

// Report says who used how much of the machine.
func (c *Client) Report(ctx context.Context, q ReportQuery) (Report, error) {
	v := url.Values{"since": {q.Since.Format(time.DateOnly)}, "until": {q.Until.Format(time.DateOnly)}}
	return call[Report](ctx, c, http.MethodGet, "/v1/report?"+v.Encode(), nil)
}

func (s *Server) report(r *http.Request, c Caller) (any, error) {
	var q ReportQuery
	for name, to := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		t, err := time.Parse(time.DateOnly, r.URL.Query().Get(name))
		if err != nil {
			return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s: %s is no day: write it as 2026-12-01", name, strconv.Quote(r.URL.Query().Get(name)))}
		}
		*to = t
	}
	if q.Until.Before(q.Since) || q.Until.Sub(q.Since) > MaxReportDays*24*time.Hour {
		return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("want a time of at most %d days that ends after it begins", MaxReportDays)}
	}
	return s.b.Report(r.Context(), c, q)
}

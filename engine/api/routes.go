package api

// The routes, all under the Unix socket.
//
//	GET  /v1/info
//	GET  /v1/gpus
//	GET  /v1/doctor                     -> Diagnosis
//	GET  /v1/users                      -> Users
//	GET  /v1/images                     -> Images
//	GET  /v1/watch                      newline-delimited WatchEvent
//	POST /v1/jobs                       SubmitRequest -> SubmitResponse
//	GET  /v1/jobs?ended=true&limit=N    newline-delimited Job
//	GET  /v1/jobs/{id}
//	GET  /v1/jobs/{id}/explain          -> Explanation
//	POST /v1/jobs/{id}/cancel           StopRequest -> Job
//	POST /v1/jobs/{id}/preempt          StopRequest -> Job
//	POST /v1/jobs/{id}/hold             StopRequest -> Job
//	POST /v1/jobs/{id}/release          StopRequest -> Job
//	POST /v1/jobs/{id}/requeue          StopRequest -> SubmitResponse
//	POST /v1/jobs/{id}/update           UpdateRequest -> Job
//	GET  /v1/jobs/{id}/wait             -> Job when final
//	GET  /v1/jobs/{id}/attend           -> Job when final; the caller is there as long as it is open
//	POST /v1/jobs/{id}/detach           -> Job
//	GET  /v1/jobs/{id}/logs?attempt=N&follow=true&tail=N   the output's bytes
//	     … &marks=true                  the same in pieces, each after a line "BYTES ATTEMPT.OFFSET.FILE"
//	     … &from=ATTEMPT.OFFSET.FILE    from behind such a piece on
//	     … &json=true                   as JSON lines: {"time","job","attempt","stream","text"}
//	GET  /v1/jobs/{id}/exec             -> ExecTarget
//	GET  /v1/audit?since=TIME&user=NAME&limit=N   -> Audit
//	GET  /v1/report?since=DAY&until=DAY -> Report
//	GET  /v1/reservations               -> []Reservation
//	POST /v1/reservations               ReserveRequest -> ReserveResponse
//	POST /v1/reservations/{id}/remove   StopRequest -> Reservation
//	POST /v1/undrain                    UndrainRequest -> []Reservation: the drains that are left
//	GET  /v1/notices?limit=N            -> Notices: the caller's own
//	POST /v1/notices/read               ReadRequest -> {}
//	GET  /metrics                       what Prometheus reads
//	POST /v1/agent                      Upgrade: gputop-agent; the connection becomes an agentrpc link

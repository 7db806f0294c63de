package api

// The routes, all under the Unix socket.
//
//	GET  /v1/info
//	GET  /v1/gpus
//	GET  /v1/watch                      newline-delimited WatchEvent
//	POST /v1/jobs                       SubmitRequest -> SubmitResponse
//	GET  /v1/jobs?ended=true&limit=N    newline-delimited Job
//	GET  /v1/jobs/{id}
//	POST /v1/jobs/{id}/cancel           StopRequest -> Job
//	POST /v1/jobs/{id}/preempt          StopRequest -> Job
//	GET  /v1/jobs/{id}/wait             -> Job when final
//	GET  /v1/jobs/{id}/logs?attempt=N&follow=true&tail=N   the output's bytes
//	GET  /v1/jobs/{id}/exec             -> ExecTarget
//	POST /v1/agent                      Upgrade: gputop-agent; the connection becomes an agentrpc link

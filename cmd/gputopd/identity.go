package main

import (
	"log/slog"
	"os/user"
	"slices"
	"strconv"
	"sync"

	"gputop/engine/api"
)

// names remembers who a uid is, for display.
var names sync.Map

func userName(uid uint32) string {
	if n, ok := names.Load(uid); ok {
		return n.(string)
	}
	id := strconv.FormatUint(uint64(uid), 10)
	name := id
	if u, err := user.LookupId(id); err == nil {
		name = u.Username
	}
	names.Store(uid, name)
	return name
}

// serverOptions say who is an admin: root, and in shared mode the members of the configured group.
func serverOptions(conf config, shared bool, log *slog.Logger) api.ServerOptions {
	return api.ServerOptions{Log: log, Admin: func(c api.Caller) bool {
		if c.UID == 0 {
			return true
		}
		if !shared {
			return false
		}
		g, err := user.LookupGroup(conf.policy.AdminGroup)
		if err != nil {
			return false
		}
		gid, err := strconv.ParseUint(g.Gid, 10, 32)
		return err == nil && slices.Contains(c.Groups, uint32(gid))
	}}
}

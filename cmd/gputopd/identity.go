package main

import (
	"log/slog"
	"os/user"
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

// serverOptions say who is an admin: root, and in shared mode the members of the configured group, where it exists.
func serverOptions(conf config, shared bool, log *slog.Logger) api.ServerOptions {
	o := api.ServerOptions{Log: log}
	if !shared {
		return o
	}
	g, err := user.LookupGroup(conf.policy.AdminGroup)
	if err != nil {
		log.Info("no admin group, only root is an admin", "group", conf.policy.AdminGroup)
		return o
	}
	if gid, err := strconv.ParseUint(g.Gid, 10, 32); err == nil {
		o.AdminGroups = []uint32{uint32(gid)}
	}
	return o
}

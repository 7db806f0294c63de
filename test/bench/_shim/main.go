package main

import (
	"context"
	"fmt"
	"gputop/engine"
	"gputop/engine/api"
	"os"
	"time"
)

func main() {
	c := &api.Client{Socket: os.Getenv("GPUTOP_SOCKET")}
	ctx := context.Background()
	if os.Args[1] == "ls" {
		js, err := c.List(ctx, false, 0)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		for _, j := range js {
			fmt.Println(j.ID, j.Name, j.State, j.Owner)
		}
		return
	}
	wd, _ := os.Getwd()
	cmd := os.Args[5:]
	r, err := c.Submit(ctx, api.SubmitRequest{Spec: engine.Spec{Name: "x", Profile: "demo", Command: cmd, Workdir: wd, Class: engine.Medium, TimeLimit: time.Hour, Request: engine.Request{GPUs: 1}}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(r.Job.ID)
}

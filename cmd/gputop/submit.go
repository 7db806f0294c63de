package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
)

// value is a flag of the draft package; its type is shown in the help.
type value struct {
	set  func(string)
	get  func() string
	kind string
}

func (v value) Set(s string) error { v.set(s); return nil }
func (v value) String() string {
	if v.get == nil {
		return ""
	}
	return v.get()
}
func (v value) Type() string { return v.kind }

// addFlags adds the draft's flags, or only those named.
func addFlags(cmd *cobra.Command, f *draft.Fields, only ...string) {
	for _, fl := range draft.Flags() {
		if len(only) > 0 && !slices.Contains(only, fl.Name) {
			continue
		}
		v := value{kind: fl.Arg}
		if fl.Repeats() {
			list := fl.List(f)
			v.set = func(s string) { *list = append(*list, s) }
			v.get = func() string { return strings.Join(*list, ",") }
		} else {
			field := fl.Value(f)
			v.set = func(s string) { *field = s }
			v.get = func() string { return *field }
		}
		cmd.Flags().Var(v, fl.Name, fl.Usage)
	}
}

func (c *cli) submitCommand() *cobra.Command {
	var f draft.Fields
	var file string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "submit [flags] -- COMMAND...\n  gputop submit [flags] SCRIPT [ARG...]\n  gputop submit [flags] -f JOB.yaml",
		Short: "Queue a job",
		Long: `Queue a job. It runs in a rootless container, in the directory it is submitted from, with one GPU unless you say
otherwise.

A script may say what it needs in lines such as "#GPUTOP --gpus 2" at its top, and a job file with the flags' names as
keys. Flags on the command line win over both.`,
		Example: `  gputop submit -- python train.py --lr 0.1
  gputop submit --gpu-mem 12GiB --time-limit 2h --output 'train-%j.log' -- python train.py
  gputop submit --gpus 0 --cpus 8 -- make data
  gputop submit --array 0-99%8 -- python sweep.py
  gputop submit --after 42 --begin 'sat 8:00' -- python evaluate.py
  gputop submit --mount /data/vision:/data:ro --env-file secrets.env train.sh
  gputop submit -f job.yaml --class low`,
		RunE: func(cmd *cobra.Command, args []string) error {
			fields, err := c.fields(f, file, args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			return c.submit(cmd.Context(), fields, dryRun)
		},
	}
	cmd.Flags().SetInterspersed(false)
	addFlags(cmd, &f)
	cmd.Flags().StringVarP(&file, "file", "f", "", "read the job from a YAML file; - for standard input")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the job and keep nothing")
	c.jsonFlag(cmd)
	must(cmd.RegisterFlagCompletionFunc("class", cobra.FixedCompletions(classWords(), cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("profile", c.completeProfiles))
	return cmd
}

func classWords() (words []string) {
	for _, cl := range engine.Classes {
		words = append(words, cl.String())
	}
	return words
}

// must is for mistakes in this program's own text.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// fields puts together what the file, the script and the command line say.
func (c *cli) fields(flags draft.Fields, file string, args []string, dash int) (draft.Fields, error) {
	var base draft.Fields
	if file != "" {
		var err error
		if base, err = c.readYAML(file); err != nil {
			return base, err
		}
	}
	switch {
	case len(args) == 0:
	case dash == 0:
		base.Command = args
	case file != "":
		return base, usagef("with -f the command goes behind --: gputop submit -f %s -- %s", file, strings.Join(args, " "))
	default:
		var err error
		if base, err = script(args[0], args[1:], flags.Workdir); err != nil {
			return base, err
		}
	}
	return base.With(flags), nil
}

func (c *cli) readYAML(file string) (draft.Fields, error) {
	if file == "-" {
		f, err := draft.ParseYAML(c.in, "standard input")
		return f, asUsage(err)
	}
	r, err := os.Open(file)
	if err != nil {
		return draft.Fields{}, usagef("job file: %v", err)
	}
	defer r.Close()
	f, err := draft.ParseYAML(r, file)
	return f, asUsage(err)
}

func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usagef("%v", err)
}

// script reads a script's #GPUTOP lines and makes it the command.
func script(path string, args []string, workdir string) (draft.Fields, error) {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return draft.Fields{}, usagef("%q is no script here; put a command behind --: gputop submit -- %s", path, strings.Join(append([]string{path}, args...), " "))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return draft.Fields{}, usagef("script: %v", err)
	}
	f, err := draft.ParseScript(strings.NewReader(string(b)))
	if err != nil {
		return f, usagef("%s: %v", path, err)
	}
	// sh would take a Python program for its own, after hours in the queue.
	if !strings.HasPrefix(string(b), "#!") && filepath.Ext(path) != ".sh" {
		with := "PROGRAM"
		if filepath.Ext(path) == ".py" {
			with = "python3"
		}
		return f, usagef("%s has no first line #!… that says what runs it; add one, or put the command behind --: gputop submit -- %s", path,
			strings.Join(append([]string{with, path}, args...), " "))
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return f, fmt.Errorf("script: %w", err)
	}
	f.Command = draft.ScriptCommand(full, string(b), args)
	if f.Name == "" {
		f.Name = filepath.Base(path)
	}
	// A script that is run from its file must be seen inside, also when it lies elsewhere.
	if dir, err := filepath.Abs(workdir); err == nil && !strings.HasPrefix(full, dir+"/") {
		f.Mounts = append(f.Mounts, full+":"+full+":ro")
	}
	return f, nil
}

func (c *cli) submit(ctx context.Context, f draft.Fields, dryRun bool) error {
	return c.ask(ctx, func(ctx context.Context, client *api.Client) error {
		info, err := client.Info(ctx)
		if err != nil {
			return err
		}
		spec, err := draft.Build(f, draft.Defaults(info.DefaultsFor(f.Profile)), callerHere())
		if err != nil {
			return typed(err)
		}
		resp, err := queued(ctx, client, info, api.SubmitRequest{Spec: spec, DryRun: dryRun})
		if err != nil {
			return err
		}
		return c.printSubmitted(resp, dryRun)
	})
}

// queued submits a job; its warnings are the daemon's and this side's.
func queued(ctx context.Context, client *api.Client, info api.Info, r api.SubmitRequest) (api.SubmitResponse, error) {
	resp, err := client.Submit(ctx, r)
	if err != nil {
		return resp, fmt.Errorf("the job was not queued: %w", err)
	}
	if note := notFound(info, r.Spec); note != "" {
		resp.Warnings = append(resp.Warnings, note)
	}
	return resp, nil
}

// notFound says that a job which runs this machine's programs names one that is not here now. It may be by the time the
// job starts, so that it is queued all the same.
func notFound(info api.Info, spec engine.Spec) string {
	i := slices.IndexFunc(info.Profiles, func(p api.Profile) bool { return p.Name == spec.Profile })
	if i < 0 || info.Profiles[i].Image != "" || info.Profiles[i].NeedsImage || spec.Image != "" || len(spec.Command) == 0 {
		return ""
	}
	program := spec.Command[0]
	if strings.Contains(program, "/") {
		if !filepath.IsAbs(program) {
			program = filepath.Join(spec.Workdir, program)
		}
		st, err := os.Stat(program)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Sprintf("there is no %s now; the job fails unless there is when it starts", program)
		case err == nil && st.IsDir():
			return program + " is a directory; the job fails if it is when it starts"
		case err == nil && st.Mode()&0o111 == 0:
			return program + " is not executable (chmod +x); the job fails if it is not when it starts"
		}
		return ""
	}
	path, ok := spec.Env["PATH"]
	if !ok {
		path = spec.CallerEnv["PATH"]
	}
	in := func(name string) bool {
		return slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
			st, err := os.Stat(filepath.Join(dir, name))
			return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
		})
	}
	if path == "" || in(program) {
		return ""
	}
	text := fmt.Sprintf("there is no program %q on the job's PATH now; the job fails unless there is when it starts", program)
	if _, err := os.Stat(filepath.Join(spec.Workdir, program)); err == nil {
		text += "; for the file here write ./" + program
	} else if in(program + "3") {
		text += "; there is " + program + "3"
	}
	return text
}

func (c *cli) printSubmitted(resp api.SubmitResponse, dryRun bool) error {
	if c.json {
		return c.printJSON(struct {
			Version int     `json:"version"`
			Job     api.Job `json:"job"`
			// Last is the id of the last element of an array.
			Last     engine.JobID `json:"last,omitempty"`
			Warnings []string     `json:"warnings,omitempty"`
		}{1, resp.Job, resp.Last, resp.Warnings})
	}
	c.note(resp.Warnings...)
	text := fmt.Sprintf("Job %s queued.", resp.Job.ID)
	if resp.Last > resp.Job.ID {
		text = fmt.Sprintf("Jobs %s-%s queued.", resp.Job.ID, resp.Last)
	}
	if dryRun {
		text = "The job would be queued."
	}
	_, err := fmt.Fprintln(c.out, text)
	return err
}

// callerHere is who submits, from where.
func callerHere() draft.Caller {
	dir, err := os.Getwd()
	if err != nil {
		dir = "" // Build says that it is gone
	}
	home, _ := os.UserHomeDir() // only for ~ in paths
	return draft.Caller{Workdir: dir, Environ: os.Environ(), Home: home}
}

// typed shows field errors as the flags they are about, one a line.
func typed(err error) error {
	var lines []string
	for _, fe := range draft.FieldErrors(err) {
		name := "--" + fe.Field
		if fe.Field == "command" {
			name = "command"
		}
		lines = append(lines, name+": "+fe.Err.Error())
	}
	if len(lines) == 0 {
		return err
	}
	if len(lines) > 1 {
		return usagef("the job was not queued:\n  %s", strings.Join(lines, "\n  "))
	}
	return usagef("the job was not queued: %s", lines[0])
}

var errNoOutput = errors.New("standard output is closed")

// write prints what was put together at once.
func (c *cli) write(s string) error {
	if _, err := io.WriteString(c.out, s); err != nil {
		return fmt.Errorf("%w: %w", errNoOutput, err)
	}
	return nil
}

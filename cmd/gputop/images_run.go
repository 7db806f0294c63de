package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine/termsafe"
)

func (c *cli) imageImportCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "import NAME",
		Short:   "Copy an image from this machine's Docker into your own Podman",
		Long:    "Copy an image from this machine's Docker into your own Podman, as docker save NAME | podman load does.",
		Example: "  gputop images import my-image:dev",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.importImage(cmd.Context(), args[0]) },
	}
}

// importImage runs both programs as the caller. The image is in the store the caller's jobs use only if podman has the
// environment that the agent gives it.
func (c *cli) importImage(ctx context.Context, name string) error {
	if _, err := fullImage(name); err != nil {
		return err
	}
	o, err := imageOwner()
	if err != nil {
		return err
	}
	docker, err := exec.LookPath("docker")
	if err != nil {
		return errors.New("there is no docker on the PATH; an image in a file is loaded with: podman load -i FILE")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	save := exec.CommandContext(ctx, docker, "image", "save", "--", name)
	load, err := o.podman(ctx, "load")
	if err != nil {
		return err
	}
	said, saidLoad := &tailWriter{}, &tailWriter{}
	save.Stderr, load.Stderr = said, saidLoad
	save.WaitDelay = time.Second
	var loaded bytes.Buffer
	load.Stdout = &loaded
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	save.Stdout, load.Stdin = w, r
	loadErr := load.Start()
	r.Close()
	if loadErr != nil {
		w.Close()
		return fmt.Errorf("start podman: %w", loadErr)
	}
	saveErr := save.Run()
	w.Close() // that is how podman learns of the end
	loadErr = load.Wait()
	switch {
	case saveErr != nil && (said.String() != "" || loadErr == nil): // else it had nobody to write to
		return fmt.Errorf("docker gave no image %s: %s", name, dockerHint(said.String()))
	case loadErr != nil:
		return fmt.Errorf("podman did not take image %s: %s", name, saidLoad.String())
	}
	return c.write(termsafe.Text(loaded.String()))
}

// dockerHint adds to docker's words what helps, where it is known.
func dockerHint(said string) string {
	switch {
	case strings.Contains(said, "permission denied"):
		return said + "\nYou may not use this machine's Docker; who may can run: docker image save NAME | gzip > FILE, and you: podman load -i FILE"
	case strings.Contains(said, "Cannot connect"), strings.Contains(said, "failed to connect"):
		return said + "\nDocker does not run on this machine, or not for you."
	}
	return said
}

// imageOwner is the caller, who is not root: root has no images for jobs.
func imageOwner() (owner, error) {
	if os.Getuid() == 0 {
		return owner{}, errors.New("root runs no jobs: run this as the user whose jobs want the image")
	}
	return caller()
}

func (c *cli) imageLoginCommand() *cobra.Command {
	var name string
	var stdin bool
	cmd := &cobra.Command{
		Use:   "login REGISTRY",
		Short: "Log in to a registry, so that your jobs can pull your images",
		Long: "Log in to a registry with your own Podman, which asks for name and password. They are kept in\n" +
			"~/.config/containers/auth.json, where your jobs' pulls find them after a logout too; Podman's own place is gone then.",
		Example: "  gputop images login ghcr.io\n  pass show ghcr | gputop images login --username me --password-stdin ghcr.io",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.login(cmd.Context(), args[0], name, stdin)
		},
	}
	cmd.Flags().StringVarP(&name, "username", "u", "", "the name at the registry (else Podman asks)")
	cmd.Flags().BoolVar(&stdin, "password-stdin", false, "read the password from standard input")
	return cmd
}

// login attaches podman to the caller's terminal. The password goes from there to podman alone.
func (c *cli) login(ctx context.Context, registry, name string, stdin bool) error {
	o, err := imageOwner()
	if err != nil {
		return err
	}
	if registry == "" || strings.HasPrefix(registry, "-") || strings.ContainsAny(registry, "/ ") {
		return usagef("%q is no registry; write it like ghcr.io", registry)
	}
	file := filepath.Join(o.home, ".config", "containers", "auth.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("directory of the login: %w", err)
	}
	argv := []string{"login", "--authfile", file}
	if name != "" {
		argv = append(argv, "--username", name)
	}
	if stdin {
		argv = append(argv, "--password-stdin")
	}
	cmd, err := o.podman(ctx, append(argv, "--", registry)...)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, "TERM="+os.Getenv("TERM"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.in, c.out, c.err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("podman login to %s: %w", registry, err)
	}
	return c.checkLogin(o, file, registry)
}

// checkLogin says where the login is, and looks whether a pull of the caller's jobs finds it first.
func (c *cli) checkLogin(o owner, file, registry string) error {
	if !hasLogin(file, registry) {
		return fmt.Errorf("podman kept the login to %s elsewhere than in %s, perhaps in a credential helper: your jobs may not find it", registry, file)
	}
	text := fmt.Sprintf("The login to %s is in %s; your jobs' pulls find it there.\n", registry, file)
	if o.runtimeDir != "" {
		if other := filepath.Join(o.runtimeDir, "containers", "auth.json"); hasLogin(other, registry) {
			text += fmt.Sprintf("An older one in %s goes before it until you log out: podman logout --authfile %s %s\n", other, other, registry)
		}
	}
	return c.write(text)
}

func hasLogin(file, registry string) bool {
	b, err := os.ReadFile(file)
	var f struct {
		Auths map[string]json.RawMessage
	}
	return err == nil && json.Unmarshal(b, &f) == nil && f.Auths[registry] != nil
}

// tailWriter keeps the end of what a program says.
type tailWriter struct{ kept []byte }

func (t *tailWriter) Write(b []byte) (int, error) {
	const most = 2 << 10
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-most):]
	return len(b), nil
}

func (t *tailWriter) String() string { return strings.TrimSpace(string(t.kept)) }

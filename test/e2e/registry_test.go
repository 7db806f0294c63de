//go:build e2e

package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"gputop/engine"
)

// registry serves one image from the directory that podman save --format oci-dir made, to who knows the password.
type registry struct {
	dir, name, user, password string
	refused, pulled           atomic.Int64
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if u, p, ok := q.BasicAuth(); !ok || u != r.user || p != r.password {
		r.refused.Add(1)
		w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	if q.URL.Path == "/v2/" {
		return
	}
	rest, ok := strings.CutPrefix(q.URL.Path, "/v2/"+r.name+"/")
	digest := filepath.Base(rest)
	switch {
	case !ok:
		http.NotFound(w, q)
		return
	case strings.HasPrefix(rest, "manifests/"):
		var index struct {
			Manifests []struct{ MediaType, Digest string }
		}
		b, err := os.ReadFile(filepath.Join(r.dir, "index.json"))
		if err != nil || json.Unmarshal(b, &index) != nil || len(index.Manifests) != 1 {
			http.Error(w, "no index", http.StatusInternalServerError)
			return
		}
		digest = index.Manifests[0].Digest
		w.Header().Set("Content-Type", index.Manifests[0].MediaType)
		w.Header().Set("Docker-Content-Digest", digest)
		r.pulled.Add(1)
	}
	http.ServeFile(w, q, filepath.Join(r.dir, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:")))
}

// TestImageLogin: a pull without a login is refused with the command that mends it; after it, the job's pull goes, also
// without the directory that goes with a login session.
func TestImageLogin(t *testing.T) {
	o := newPerson(t, bob)
	dir := filepath.Join(o.dir("oci"), "image")
	o.run("podman", "save", "-q", "--format", "oci-dir", "-o", dir, image)
	reg := &registry{dir: dir, name: "lab/tool", user: "bob", password: "pass word"}
	srv := httptest.NewServer(reg)
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	config := filepath.Join(o.home, ".config", "containers")
	conf, auth := filepath.Join(config, "registries.conf.d", "50-e2e.conf"), filepath.Join(config, "auth.json")
	name := host + "/lab/tool:1"
	t.Cleanup(func() { os.Remove(conf); os.Remove(auth); o.try("podman", "untag", name, name) })
	o.run("mkdir", "-p", filepath.Dir(conf))
	if err := os.WriteFile(conf, []byte("[[registry]]\nlocation = \""+host+"\"\ninsecure = true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if exists(auth) {
		t.Fatalf("%s is there already", auth)
	}
	endPodmanServices(o.uid) // one that runs has read its configuration
	b := shared(t, oneCard)
	o.env = b.person(bob).env
	id := o.submit("--image", name, "--gpus", "0", "--", "true")
	bad := o.untilState(id, engine.Failed)
	if !strings.Contains(bad.Message, "gputop images login "+host) {
		t.Errorf("without a login: %q", bad.Message)
	}
	if r := o.try("sh", "-c", "echo wrong | gputop images login --username bob --password-stdin "+host); r.code == 0 || exists(auth) && strings.Contains(read(t, auth), host) {
		t.Errorf("with a wrong password: exit %d: %s%s", r.code, r.out, r.err)
	}
	out := o.run("sh", "-c", "echo 'pass word' | gputop images login --username bob --password-stdin "+host)
	if !strings.Contains(out, "The login to "+host+" is in "+auth) {
		t.Errorf("login says %q", out)
	}
	if st, err := os.Stat(auth); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the login's file: %v, %v", st, err)
	}
	d := o.untilState(o.submit("--image", name, "--gpus", "0", "--", "true"), engine.Succeeded)
	if d.ImageName != name || reg.pulled.Load() == 0 {
		t.Errorf("image %q, pulled %d times", d.ImageName, reg.pulled.Load())
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// endPodmanServices ends the Podman services that agents of a test account left.
func endPodmanServices(uid int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		st, err := os.Stat(filepath.Join("/proc", e.Name()))
		line, err2 := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || err2 != nil || !strings.Contains(string(line), "podman") || !strings.Contains(string(line), "system\x00service") {
			continue
		}
		pid, err := strconv.Atoi(e.Name())
		if s, ok := st.Sys().(*syscall.Stat_t); ok && err == nil && int(s.Uid) == uid {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
}

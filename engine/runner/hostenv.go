package runner

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/images"

	"gputop/engine/agentrpc"
	"gputop/engine/runner/account"
)

// hostEnvName is the host-environment image; the tag is a hash of what is in it.
const hostEnvName = "localhost/gputop-host-env"

// maxHostFile bounds a file of /etc that goes into the image, in bytes.
const maxHostFile = 4 << 20

var (
	// hostProgramDirs are mounted read-only where they exist as directories.
	hostProgramDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc/alternatives", "/etc/ssl",
		"/etc/ca-certificates", "/etc/pki", "/etc/fonts", "/etc/OpenCL", "/etc/vulkan", "/etc/profile.d", "/etc/ImageMagick-6",
		"/etc/R", "/etc/java", "/etc/xdg"}
	// hostLinks are those of the above that are links on a merged-/usr system.
	hostLinks = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
	// hostFiles are copied into the image, so that CDI hooks may change the container's own.
	hostFiles = []string{"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone", "/etc/services",
		"/etc/protocols", "/etc/mime.types", "/etc/bash.bashrc", "/etc/profile", "/etc/inputrc", "/etc/gai.conf", "/etc/gitconfig",
		"/etc/pip.conf", "/etc/debian_version", "/etc/os-release", "/etc/locale.conf", "/etc/default/locale", "/etc/ca-certificates.conf"}
	// emptyDirs are mount points and directories that programs expect.
	emptyDirs = []struct {
		path string
		mode int64
	}{{"/dev", 0o755}, {"/proc", 0o555}, {"/sys", 0o555}, {"/run", 0o755}, {"/tmp", 0o1777}, {"/root", 0o700}, {"/home", 0o755},
		{"/mnt", 0o755}, {"/etc", 0o755}, {"/var", 0o755}, {"/var/tmp", 0o1777}, {"/var/lib", 0o755}, {"/var/cache", 0o755},
		{"/var/log", 0o755}, {"/usr", 0o755}}
)

// existingHostDirs are the program directories of this machine below root ("/" but in tests).
func existingHostDirs(root string) []string {
	var out []string
	for _, d := range hostProgramDirs {
		if fi, err := os.Lstat(filepath.Join(root, d)); err == nil && fi.IsDir() {
			out = append(out, d)
		}
	}
	return out
}

// hostEnvTar makes the image: the skeleton of a root directory that the host's programs are mounted into. It is the
// same bytes for the same host, so that its hash can name it.
func hostEnvTar(root string, u account.Account) ([]byte, error) {
	var buf bytes.Buffer
	b := &tarBuilder{w: tar.NewWriter(&buf), root: root, dirs: map[string]bool{"/": true}}
	for _, d := range emptyDirs {
		b.dir(d.path, d.mode)
	}
	for _, d := range hostLinks {
		b.hostLink(d)
	}
	for _, d := range existingHostDirs(root) {
		b.dir(d, 0o755)
	}
	for _, f := range hostFiles {
		b.hostFile(f)
	}
	conf, _ := filepath.Glob(filepath.Join(root, "/etc/ld.so.conf.d/*.conf")) // only a bad pattern fails
	slices.Sort(conf)
	for _, f := range conf {
		b.hostFile("/etc/ld.so.conf.d/" + filepath.Base(f))
	}
	// The user is root of the container's user namespace: both names stand for that one id.
	b.file("/etc/passwd", fmt.Appendf(nil, "%s:x:0:0::%s:%s\nroot:x:0:0:root:%s:%s\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		u.Name, u.Home, u.Shell, u.Home, u.Shell))
	b.file("/etc/group", []byte("root:x:0:\nnogroup:x:65534:\n"))
	b.link("/var/run", "/run")
	b.link("/etc/mtab", "/proc/self/mounts")
	if b.err == nil {
		b.err = b.w.Close()
	}
	return buf.Bytes(), b.err
}

// tarBuilder writes entries until the first error.
type tarBuilder struct {
	w    *tar.Writer
	root string
	dirs map[string]bool
	err  error
}

func (b *tarBuilder) put(h tar.Header, data []byte) {
	if b.err != nil {
		return
	}
	if parent := path.Dir(h.Name); !b.dirs[parent] {
		b.dir(parent, 0o755)
	}
	h.Name = h.Name[1:]
	h.ModTime, h.Size, h.Format = time.Unix(0, 0), int64(len(data)), tar.FormatPAX
	if b.err = b.w.WriteHeader(&h); b.err == nil {
		_, b.err = b.w.Write(data)
	}
}

func (b *tarBuilder) dir(name string, mode int64) {
	if b.dirs[name] {
		return
	}
	b.put(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, nil)
	b.dirs[name] = true
}

func (b *tarBuilder) link(name, target string) {
	b.put(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

func (b *tarBuilder) file(name string, data []byte) {
	b.put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, data)
}

func (b *tarBuilder) hostLink(name string) {
	if target, err := os.Readlink(filepath.Join(b.root, name)); err == nil {
		b.link(name, target)
	}
}

// hostFile copies a readable plain file, through links; what is not there is left out.
func (b *tarBuilder) hostFile(name string) {
	p := filepath.Join(b.root, name)
	fi, err := os.Stat(p)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > maxHostFile {
		return
	}
	if data, err := os.ReadFile(p); err == nil {
		b.file(name, data)
	} else if !os.IsPermission(err) && !os.IsNotExist(err) {
		b.err = &fs.PathError{Op: "copy", Path: p, Err: err}
	}
}

// prepareHostEnv makes the image when the host's files have changed since the last one.
func (a *Agent) prepareHostEnv(ctx context.Context, p agentrpc.PrepareArgs) (agentrpc.Image, error) {
	if _, err := checkHome(a.user); err != nil {
		return agentrpc.Image{}, err
	}
	data, err := hostEnvTar("/", a.user)
	if err != nil {
		return agentrpc.Image{}, &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "make the host-environment image: " + err.Error()}
	}
	sum := sha256.Sum256(data)
	name := hostEnvName + ":" + hex.EncodeToString(sum[:8])
	img, err := a.lookUpImage(ctx, name)
	if err != nil || img.Found {
		return img, err
	}
	a.progress(p.Job, "making the host-environment image")
	err = a.podman.call(ctx, "import the host-environment image", func(ctx context.Context) error {
		_, err := images.Import(ctx, bytes.NewReader(data), new(images.ImportOptions).WithReference(name))
		return err
	})
	if err != nil {
		return agentrpc.Image{}, err
	}
	if img, err = a.lookUpImage(ctx, name); err == nil && !img.Found {
		err = &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "the host-environment image " + name + " is not there after importing it"}
	}
	return img, err
}

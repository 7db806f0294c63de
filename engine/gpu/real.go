package gpu

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const libraryName = "libnvidia-ml.so.1"

// Real is NVIDIA's library: the system's, or the file at path when that is not empty. Nothing is loaded yet; a machine
// without a driver shows at the first sample. The error is a path that cannot be one.
func Real(path string) (nvml.Interface, error) {
	if path == "" {
		return nvml.New(), nil
	}
	// A bare name would be searched for in the system's directories instead.
	abs, err := filepath.Abs(path)
	if err == nil {
		var fi os.FileInfo
		if fi, err = os.Stat(abs); err == nil && !fi.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a file", abs)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("NVML library: %w; give the path of %s", err, libraryName)
	}
	return nvml.New(nvml.WithLibraryPath(abs)), nil
}

// initSentence says in one sentence why there is no session, and what to do.
func initSentence(r nvml.Return, library string) string {
	const orSimulate = ", or try gputop with simulated GPUs: --simulate a100-40gb:2"
	switch r {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		if library != "" {
			return fmt.Sprintf("the NVML library %s cannot be loaded (%s); give the path of a %s for this machine", library, loadError(library), libraryName)
		}
		return "no NVIDIA driver on this machine: " + libraryName + " was not found; install the driver" + orSimulate
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the NVIDIA driver is installed but its kernel module is not loaded; load it with modprobe nvidia, or reboot" + orSimulate
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "the NVIDIA driver was upgraded while the old one was loaded (driver/library version mismatch); reboot this machine"
	case nvml.ERROR_NO_PERMISSION:
		return "no permission to talk to the NVIDIA driver; check who may open /dev/nvidiactl"
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return "the NVIDIA driver is too old: its library has no function to start with; install a newer driver"
	case nvml.ERROR_GPU_IS_LOST:
		return "the NVIDIA driver does not start because a card is lost; see dmesg for the Xid, then reboot"
	}
	return "the NVIDIA driver does not start: " + r.Error() + "; run nvidia-smi and dmesg to see what is wrong"
}

// loadError is what the dynamic loader says of a library.
func loadError(path string) string {
	l := dl.New(path, dl.RTLD_LAZY)
	if err := l.Open(); err != nil {
		return err.Error()
	}
	// It loads now; the next sample will use it.
	_ = l.Close()
	return "it was not ready"
}

// cudaVersion is NVML's number for a CUDA version, such as 12040, as people write it: "12.4".
func cudaVersion(n int) string { return fmt.Sprintf("%d.%d", n/1000, n%1000/10) }

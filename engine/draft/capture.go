package draft

import (
	"strings"
	"unicode/utf8"
)

// maxCaptured is the longest value taken from the shell, in bytes.
const maxCaptured = 32 << 10

// capturedNames are the variables that say where a lab's programs, libraries and caches lie.
var capturedNames = map[string]bool{
	"PATH": true, "VIRTUAL_ENV": true, "PYTHONPATH": true, "PYTHONHOME": true, "PYENV_ROOT": true, "PYENV_VERSION": true,
	"LD_LIBRARY_PATH": true, "CUDA_HOME": true, "CUDA_PATH": true, "MAMBA_ROOT_PREFIX": true,
	"LANG": true, "LANGUAGE": true, "TZ": true,
	"HF_HOME": true, "HF_HUB_CACHE": true, "HF_DATASETS_CACHE": true, "TRANSFORMERS_CACHE": true, "TORCH_HOME": true,
	"TRITON_CACHE_DIR": true, "XDG_CACHE_HOME": true, "PIP_CACHE_DIR": true, "UV_CACHE_DIR": true,
	"UV_PROJECT_ENVIRONMENT": true, "JULIA_DEPOT_PATH": true, "R_LIBS_USER": true,
}

var secretWords = []string{"TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL", "AUTH"}

// captured says whether a variable of the submitting shell goes with the job. Never one that sounds like a secret.
func captured(name string) bool {
	if capturedNames[name] {
		return true
	}
	if !strings.HasPrefix(name, "CONDA_") && !strings.HasPrefix(name, "LC_") || checkEnvName(name) != nil {
		return false
	}
	for _, w := range secretWords {
		if strings.Contains(name, w) {
			return false
		}
	}
	return true
}

// CaptureEnv picks from a shell's environment what a program needs to find its interpreter, packages and caches.
func CaptureEnv(environ []string) map[string]string {
	env := map[string]string{}
	for _, e := range environ {
		name, value, ok := strings.Cut(e, "=")
		if ok && captured(name) && len(value) <= maxCaptured && utf8.ValidString(value) && !strings.ContainsAny(value, "\x00\n") {
			env[name] = value
		}
	}
	if len(env) == 0 {
		return nil
	}
	return env
}

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// setting is a key that the packaged file shows with its default, commented.
var setting = regexp.MustCompile(`(?m)^#([a-z_]+): (.*)$`)

func TestPackagedConfiguration(t *testing.T) {
	const packaged = "../../packaging/config.yaml"
	b, err := os.ReadFile(packaged)
	if err != nil {
		t.Fatal(err)
	}
	none, err := loadConfig(filepath.Join(t.TempDir(), "none"), false, false)
	if err != nil {
		t.Fatal(err)
	}
	asShipped, err := loadConfig(packaged, true, false)
	if err != nil || !reflect.DeepEqual(asShipped, none) {
		t.Errorf("as shipped it changes something: %+v, %v", asShipped, err)
	}
	all := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(all, []byte(setting.ReplaceAllString(string(b), "$1: $2")), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := loadConfig(all, true, false); err != nil || !reflect.DeepEqual(got, none) {
		t.Errorf("its values are not the defaults: %+v, %v; want %+v", got, err, none)
	}
	var shown []string
	for _, m := range setting.FindAllStringSubmatch(string(b), -1) {
		shown = append(shown, m[1])
	}
	for f := range reflect.TypeFor[fileConfig]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !slices.Contains(shown, key) {
			t.Errorf("%s does not show the key %s", packaged, key)
		}
	}
}

package main

import (
	"fmt"
	"path/filepath"

	"gputop/engine"
)

// imagesConfig is what an admin may say about images.
type imagesConfig struct {
	Ready    []string `yaml:"ready"`
	Archives string   `yaml:"archives"`
}

func (f fileConfig) applyImages(c *config) error {
	i := f.Images
	if i.Archives != "" {
		if !filepath.IsAbs(i.Archives) {
			return fmt.Errorf("images.archives: %q: want a full path", i.Archives)
		}
		c.policy.ImageArchives = filepath.Clean(i.Archives)
	}
	if len(i.Ready) > 0 && i.Archives == "" {
		return fmt.Errorf("images.ready: say in images.archives where their archives are")
	}
	for _, name := range i.Ready {
		names, err := engine.ImageNames(name)
		if err != nil {
			return fmt.Errorf("images.ready: %w", err)
		}
		full := names[len(names)-1]
		if engine.ImageArchive("/", full) == "" {
			return fmt.Errorf("images.ready: %s: want a name with a tag, since an archive keeps neither ID nor digest", name)
		}
		c.policy.ReadyImages = append(c.policy.ReadyImages, full)
	}
	return nil
}

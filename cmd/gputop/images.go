package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/doctor"
	"gputop/engine/termsafe"
)

func (c *cli) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "Container images that your jobs find without a pull",
		Long: "Images that your jobs find without a pull: those in your own Podman's store, and those that an admin keeps ready as\n" +
			"archives. A name without a registry means one of this machine's own (localhost/NAME), else Docker Hub's.",
		Example: "  gputop images\n  gputop images import my-image:dev\n  gputop images login ghcr.io",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) error {
				i, err := client.Images(ctx)
				if err != nil {
					return err
				}
				return c.printImages(listedImages(i, doctor.LookAtReady(doctor.Machine{Root: "/"}, i)), i.Error)
			})
		},
	}
	c.jsonFlag(cmd)
	cmd.AddCommand(c.imageImportCommand(), c.imageLoginCommand())
	return cmd
}

// listedImage is one name, and where it is.
type listedImage struct {
	agentrpc.StoredImage
	// Stored says that the caller's Podman holds it; Ready that an admin keeps it, and Archive the file, where there is one.
	Stored  bool   `json:"stored"`
	Ready   bool   `json:"ready,omitempty"`
	Archive string `json:"archive,omitempty"`
}

// listedImages puts both together, by name.
func listedImages(i api.Images, ready []doctor.ReadyImage) []listedImage {
	out := []listedImage{}
	for _, s := range i.Images {
		out = append(out, listedImage{StoredImage: s, Stored: true})
	}
	for _, r := range ready {
		at := slices.IndexFunc(out, func(l listedImage) bool { return l.Name == r.Name })
		if at < 0 {
			out = append(out, listedImage{StoredImage: agentrpc.StoredImage{Name: r.Name}})
			at = len(out) - 1
		}
		out[at].Ready = true
		if r.Archived {
			out[at].Archive = r.Archive
		}
	}
	slices.SortStableFunc(out, func(a, b listedImage) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (c *cli) printImages(list []listedImage, problem string) error {
	if c.json {
		return c.printJSON(struct {
			Version int           `json:"version"`
			Images  []listedImage `json:"images"`
			Error   string        `json:"error,omitempty"`
		}{1, list, problem})
	}
	note := ""
	if problem != "" {
		note = "Your own images are not known: " + termsafe.Line(problem) + "\n"
	}
	if len(list) == 0 {
		return c.write(note + "No images.\n")
	}
	t := newTable("IMAGE", "SIZE", "WHERE", "ID", "DIGEST")
	t.right[1] = true
	for _, l := range list {
		size, where := dash(""), "not there"
		switch {
		case l.Stored:
			size, where = l.Size.String(), "your store"
		case l.Archive != "":
			where = "archive"
		}
		if l.Ready {
			where += ", kept ready"
		}
		t.add(l.Name, size, where, dash(shortID(l.ID)), dash(l.Digest))
	}
	return c.write(note + t.String())
}

func shortID(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(len(id), 12)]
}

// fullImage is the name under which an image is looked for last.
func fullImage(name string) (string, error) {
	names, err := engine.ImageNames(name)
	if err != nil {
		return "", usagef("%v", err)
	}
	return names[len(names)-1], nil
}

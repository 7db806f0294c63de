package draft

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile is the largest job file read, in bytes.
const maxFile = 1 << 20

// ParseYAML reads a job file: the flags' names are the keys, and "command" is a line or a list. file is its name, for
// errors, which point at the line.
func ParseYAML(r io.Reader, file string) (Fields, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return Fields{}, fmt.Errorf("read %s: %w", file, err)
	}
	if len(b) > maxFile {
		return Fields{}, fmt.Errorf("%s is larger than %d bytes", file, maxFile)
	}
	tree, err := parser.ParseBytes(b, 0)
	if err != nil {
		return Fields{}, syntaxError(file, err)
	}
	var f Fields
	docs := 0
	for _, d := range tree.Docs {
		if d.Body == nil {
			continue
		}
		if docs++; docs > 1 {
			return Fields{}, at(file, d.Body, "a second job begins here; give each job a file of its own")
		}
		if err := readJob(&f, file, d.Body); err != nil {
			return Fields{}, err
		}
	}
	if docs == 0 {
		return Fields{}, fmt.Errorf("%s is empty; it needs at least a line such as: command: python train.py", file)
	}
	return f, nil
}

func syntaxError(file string, err error) error {
	var ye yaml.Error
	if errors.As(err, &ye) && ye.GetToken() != nil {
		return fmt.Errorf("%s line %d: %s", file, ye.GetToken().Position.Line, ye.GetMessage())
	}
	return fmt.Errorf("%s: %w", file, err)
}

func at(file string, n ast.Node, format string, args ...any) error {
	return fmt.Errorf("%s line %d: %s", file, n.GetToken().Position.Line, fmt.Sprintf(format, args...))
}

// pairs are the entries of a mapping of one or more keys.
func pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

func readJob(f *Fields, file string, body ast.Node) error {
	entries, ok := pairs(body)
	if !ok {
		return at(file, body, "want keys with values, such as command: python train.py")
	}
	for _, e := range entries {
		key, ok := scalar(e.Key)
		if !ok {
			return at(file, e.Key, "a key must be a plain word")
		}
		if err := readKey(f, file, key, e); err != nil {
			return err
		}
	}
	return nil
}

func readKey(f *Fields, file, key string, e *ast.MappingValueNode) error {
	if _, null := e.Value.(*ast.NullNode); null {
		return at(file, e.Key, "%s has no value; leave the line out to take the default", key)
	}
	if key == "command" {
		return readCommand(f, file, e.Value)
	}
	fl, ok := flagNamed(key)
	if !ok {
		return at(file, e.Key, "unknown key %q; the keys are %s", key, keys())
	}
	if !fl.Repeats() {
		v, ok := scalar(e.Value)
		if !ok {
			return at(file, e.Key, "%s wants one value", key)
		}
		*fl.Value(f) = v
		return nil
	}
	if vars, ok := pairs(e.Value); ok && key == "env" {
		for _, v := range vars {
			name, ok1 := scalar(v.Key)
			value, ok2 := scalar(v.Value)
			if !ok1 || !ok2 {
				return at(file, v.Key, "a variable wants one value; quote it if need be")
			}
			f.Env = append(f.Env, name+"="+value)
		}
		return nil
	}
	list, err := scalars(file, key, e.Value)
	*fl.List(f) = append(*fl.List(f), list...)
	return err
}

func readCommand(f *Fields, file string, v ast.Node) error {
	if line, ok := scalar(v); ok {
		f.Command = CommandLine(line)
		return nil
	}
	list, err := scalars(file, "command", v)
	f.Command = list
	return err
}

// keys lists what a job file may hold.
func keys() string {
	names := []string{"command"}
	for _, fl := range flags {
		names = append(names, fl.Name)
	}
	return strings.Join(names, ", ")
}

func scalars(file, key string, v ast.Node) ([]string, error) {
	seq, ok := v.(*ast.SequenceNode)
	if !ok {
		if s, ok := scalar(v); ok {
			return []string{s}, nil
		}
		return nil, at(file, v, "%s wants a list", key)
	}
	var out []string
	for _, n := range seq.Values {
		s, ok := scalar(n)
		if !ok {
			return nil, at(file, n, "%s wants a list of plain values; quote what is not", key)
		}
		out = append(out, s)
	}
	return out, nil
}

// scalar is a plain value as it was written: 0.25 stays "0.25", yes stays "yes".
func scalar(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

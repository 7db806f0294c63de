package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
)

// formField is one line of the form: free text, or one of several words.
type formField struct {
	label string
	hint  string
	names []string // of draft's fields whose errors belong here
	input textinput.Model
	words []string // a choice when not empty
	pick  int
	err   string
}

func (f *formField) value() string {
	if len(f.words) > 0 {
		return f.words[f.pick]
	}
	return strings.TrimSpace(f.input.Value())
}

// Fields of the form, in order. The command comes first, so that it and enter are all a job needs.
const (
	fieldCommand = iota
	fieldProfile
	fieldImage
	fieldGPU
	fieldClass
	fieldLimit
	fieldName
	formFields
)

// submitForm asks for a job.
type submitForm struct {
	*env
	w, h    int
	fields  [formFields]formField
	focus   int
	err     string // what belongs to no field
	sending bool
	request int
}

// submittedMsg is the outcome of a submit: a job, or what is wrong with it.
type submittedMsg struct {
	request int
	answer  api.SubmitResponse
	err     error
}

func newSubmitForm(e *env) *submitForm {
	f := &submitForm{env: e}
	text := func(label, value, hint string, names ...string) formField {
		in := textinput.New()
		in.Prompt = ""
		in.SetVirtualCursor(false)
		in.SetValue(value)
		in.CursorEnd()
		return formField{label: label, hint: hint, names: names, input: in}
	}
	choice := func(label, now, hint string, words []string, names ...string) formField {
		if !slices.Contains(words, now) {
			words = append([]string{now}, words...)
		}
		return formField{label: label, hint: hint, words: words, pick: slices.Index(words, now), names: names}
	}
	def := e.box.info.Defaults
	var profiles, classes []string
	for _, p := range e.box.info.Profiles {
		profiles = append(profiles, p.Name)
	}
	for _, c := range engine.Classes {
		classes = append(classes, c.String())
	}
	class := def.Class
	if class == 0 {
		class = engine.Medium
	}
	long := ""
	if def.TimeLimit > 0 {
		long = limit(def.TimeLimit)
	}
	f.fields = [formFields]formField{
		fieldCommand: text("command", "", "what to run, as in a shell", "command"),
		fieldProfile: choice("profile", def.Profile, "", profiles, "profile"),
		fieldImage:   text("image", "", "the profile's own", "image"),
		fieldGPU:     text("GPU", fmt.Sprint(def.GPUs), "2 cards, or a share: 12GiB, 25%", "gpus", "gpu-mem", "gpu-fraction"),
		fieldClass:   choice("class", class.String(), "", classes, "class"),
		fieldLimit:   text("time limit", long, "30m, 12h, 1d12h", "time-limit"),
		fieldName:    text("name", "", "taken from the command", "name"),
	}
	f.focusOn(fieldCommand)
	return f
}

func (f *submitForm) focusOn(n int) {
	f.fields[f.focus].input.Blur()
	f.focus = (n + formFields) % formFields
	if len(f.fields[f.focus].words) == 0 {
		f.fields[f.focus].input.Focus() // the returned command would only make a cursor blink
	}
}

func (f *submitForm) SetSize(w, h int) {
	f.w, f.h = w, h
	for i := range f.fields {
		f.fields[i].input.SetWidth(f.inputWidth(i))
	}
}

// amountFields reads the GPU field: a whole number is cards, a unit memory, a point or percent sign a fraction.
func amountFields(v string) (gpus, memory, fraction string) {
	switch {
	case strings.HasSuffix(v, "%"), strings.Contains(v, ".") && strings.Trim(v, "0123456789.") == "":
		return "", "", v
	case strings.Trim(v, "0123456789+-") == "":
		return v, "", ""
	case strings.ContainsAny(v, "0123456789"):
		return "", v, ""
	}
	return v, "", ""
}

func (f *submitForm) drafted() draft.Fields {
	d := draft.Fields{
		Command: draft.CommandLine(f.fields[fieldCommand].value()), Profile: f.fields[fieldProfile].value(),
		Image: f.fields[fieldImage].value(), Class: f.fields[fieldClass].value(),
		TimeLimit: f.fields[fieldLimit].value(), Name: f.fields[fieldName].value(),
	}
	d.GPUs, d.GPUMemory, d.GPUFraction = amountFields(f.fields[fieldGPU].value())
	return d
}

func (f *submitForm) send() tea.Cmd {
	f.clearErrors()
	if f.fields[fieldCommand].value() == "" {
		f.fields[fieldCommand].err = "write a command, for example python train.py"
		f.focusOn(fieldCommand)
		return nil
	}
	f.sending, f.request = true, f.env.request()
	d, n, build, submit := f.drafted(), f.request, f.o.Draft, f.o.Client.Submit
	return f.calls.do(func(ctx context.Context) tea.Msg {
		spec, err := build(d)
		if err != nil {
			return submittedMsg{request: n, err: err}
		}
		answer, err := submit(ctx, api.SubmitRequest{Spec: spec})
		return submittedMsg{request: n, answer: answer, err: err}
	})
}

func (f *submitForm) clearErrors() {
	f.err = ""
	for i := range f.fields {
		f.fields[i].err = ""
	}
}

// Update takes the answer, and letters and pasted text for the field in focus.
func (f *submitForm) Update(msg tea.Msg) tea.Cmd {
	switch m := msg.(type) {
	case submittedMsg:
		if m.request != f.request {
			return nil
		}
		f.sending = false
		if m.err != nil {
			f.refused(m.err)
			return nil
		}
		f.accepted(m.answer)
		return nil
	case tea.KeyPressMsg, tea.PasteMsg:
		if len(f.fields[f.focus].words) > 0 || f.sending {
			return nil
		}
		fd := &f.fields[f.focus]
		fd.input, _ = fd.input.Update(msg)
		fd.err = ""
	}
	return nil
}

// accepted closes the form and says what the job is called.
func (f *submitForm) accepted(a api.SubmitResponse) {
	if f.top() == screen(f) {
		f.back()
	}
	f.fresh = a.Job.ID
	if o, ok := f.stack[0].(*overview); ok {
		o.chase() // the stream may have been faster
	}
	text := fmt.Sprintf("job #%d %s is queued", a.Job.ID, f.sty.clean(a.Job.Name))
	if len(a.Warnings) == 0 {
		f.say(text)
		return
	}
	f.say(text + "; " + f.sty.clean(strings.Join(a.Warnings, "; ")))
	f.toast.until = f.now().Add(toastWorse)
}

// refused puts each complaint at its field and goes to the first.
func (f *submitForm) refused(err error) {
	first := -1
	for _, fe := range draft.FieldErrors(err) {
		i := slices.IndexFunc(f.fields[:], func(fd formField) bool { return slices.Contains(fd.names, fe.Field) })
		if i < 0 {
			f.err = f.errorText(fe)
			continue
		}
		f.fields[i].err = f.errorText(fe.Err)
		if first < 0 || i < first {
			first = i
		}
	}
	if first >= 0 {
		f.focusOn(first)
		return
	}
	if f.err == "" {
		f.err = f.errorText(err)
		if _, ok := errors.AsType[*api.Error](err); !ok {
			f.err = "not submitted: " + f.err
		}
	}
}

// Keys are the form's bindings; everything else is text.
func (f *submitForm) Keys() []binding {
	busy := ""
	if f.sending {
		busy = "being submitted"
	}
	able := busy
	if able == "" {
		able = f.unable()
	}
	step := func(n int) func() tea.Cmd { return func() tea.Cmd { f.focusOn(f.focus + n); return nil } }
	bs := []binding{
		{keys: []string{"enter"}, label: "enter", short: "submit", help: "submit the job", disabled: able, run: f.send},
		{keys: []string{"tab", "down"}, label: "tab", short: "next field", help: "next field", run: step(1)},
		{keys: []string{"shift+tab", "up"}, label: "shift+tab", short: "field before", help: "field before", run: step(-1)},
	}
	if fd := &f.fields[f.focus]; len(fd.words) > 0 {
		turn := func(n int) func() tea.Cmd {
			return func() tea.Cmd { fd.pick = (fd.pick + n + len(fd.words)) % len(fd.words); fd.err = ""; return nil }
		}
		bs = append(bs,
			binding{keys: []string{"right", "space", "l"}, label: arrows, short: "choose", help: "other choices", run: turn(1)},
			binding{keys: []string{"left", "h"}, run: turn(-1)})
	}
	return append(bs, binding{keys: []string{"esc"}, label: "esc", short: "close", help: "close without submitting",
		run: func() tea.Cmd { f.back(); return nil }})
}

func (f *submitForm) status() string {
	if f.sending {
		return "submitting"
	}
	return ""
}

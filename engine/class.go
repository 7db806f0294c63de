package engine

import "fmt"

// Class is a priority class. A higher value goes first.
type Class int

// The four classes. Medium is what a job gets that names none.
const (
	Low Class = iota + 1
	Medium
	High
	Critical
)

// Classes lists them, highest first.
var Classes = []Class{Critical, High, Medium, Low}

var classNames = map[Class]string{Low: "low", Medium: "medium", High: "high", Critical: "critical"}

// String is the class's word, for example "high".
func (c Class) String() string { return classNames[c] }

// ParseClass reads a class's word.
func ParseClass(s string) (Class, error) {
	for c, name := range classNames {
		if s == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("class %q: want critical, high, medium or low", s)
}

// MarshalText writes the class's word.
func (c Class) MarshalText() ([]byte, error) {
	if n, ok := classNames[c]; ok {
		return []byte(n), nil
	}
	return nil, fmt.Errorf("class %d does not exist", int(c))
}

// UnmarshalText reads the class's word.
func (c *Class) UnmarshalText(b []byte) (err error) {
	*c, err = ParseClass(string(b))
	return err
}

package engine

import (
	"slices"
	"strings"
	"unicode"
)

// ModelWords are the words of what somebody asks for in a card's model.
func ModelWords(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' })
}

// ModelNames are what a card's model may be called by: its words, and two that follow each other as one. "NVIDIA GeForce
// RTX 4090" is an rtx, a 4090 and an rtx4090.
func ModelNames(model string) []string {
	words := ModelWords(model)
	names := slices.Clone(words)
	for i := 1; i < len(words); i++ {
		names = append(names, words[i-1]+words[i])
	}
	return names
}

// IsModel says whether a model's names have all the words that are asked for: an A100 is no A10.
func IsModel(names, wanted []string) bool {
	for _, w := range wanted {
		if !slices.Contains(names, w) {
			return false
		}
	}
	return true
}

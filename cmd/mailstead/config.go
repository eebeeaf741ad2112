// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/alecthomas/kong"
)

// configFile is the name of the settings file. An empty name means none: a unit or Docker Compose
// passes a variable without a value that way.
type configFile string

// BeforeResolve makes kong read the file.
func (configFile) BeforeResolve(k *kong.Kong, ctx *kong.Context, at *kong.Path) error {
	name, _ := ctx.FlagValue(at.Flag).(configFile)
	if name == "" {
		return nil
	}
	file, err := k.LoadConfig(string(name))
	if err == nil {
		ctx.AddResolver(file)
	}
	return err
}

// configValues are the values of a TOML file whose keys are names of flags, with - or _. Flags and
// environment variables take precedence.
type configValues map[string]any

func readConfig(r io.Reader) (kong.Resolver, error) {
	s := configValues{}
	if _, err := toml.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("the configuration file: %w", err)
	}
	for key, value := range s {
		delete(s, key)
		s[strings.ReplaceAll(key, "_", "-")] = value
	}
	return s, nil
}

// Validate rejects keys that are not settings of serve, so that a typo doesn't silently leave a
// setting at its default.
func (s configValues) Validate(app *kong.Application) error {
	var known []string
	for _, command := range app.Children {
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			known = append(known, f.Name)
		}
	}
	for key := range s {
		if !slices.Contains(known, key) {
			return fmt.Errorf("the configuration file has a setting %q that does not exist", key)
		}
	}
	return nil
}

// Resolve returns a flag's value from the file.
func (s configValues) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, ok := s[flag.Name]
	if !ok || flag.Name == "config" {
		return nil, nil
	}
	for _, name := range flag.Tag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil // kong itself would prefer the file
		}
	}
	if list, ok := value.([]any); ok {
		texts := make([]string, len(list))
		for i, v := range list {
			texts[i] = fmt.Sprint(v)
		}
		return strings.Join(texts, ","), nil
	}
	return fmt.Sprint(value), nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mailstead/mailstead/internal/doctor"
	"github.com/mailstead/mailstead/internal/server"
)

type doctorCommand struct {
	File     configFile    `name:"config" help:"TOML file with any settings of mailstead serve." placeholder:"FILE"`
	Deep     bool          `help:"Read everything: the whole database file, and each message file. Beside a running service on SQLite its write-ahead log grows meanwhile." env:"-"`
	Probe    string        `help:"Also connect to the mail hosts of a domain, to see whether port 25 is open outward." placeholder:"DOMAIN" env:"-"`
	JSON     bool          `name:"json" help:"Print the result as JSON." env:"-"`
	Settings server.Config `embed:""`
}

// doctorReport is the JSON result.
type doctorReport struct {
	Checks   []doctor.Finding `json:"checks"`
	Errors   int              `json:"errors"`
	Warnings int              `json:"warnings"`
}

func (c *doctorCommand) Run() error {
	ctx, stop := signalContext()
	defer stop()
	result := doctorReport{Checks: server.RunDoctor(ctx, c.Settings, server.DoctorOptions{Deep: c.Deep, Probe: c.Probe})}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	for _, f := range result.Checks {
		switch f.Status {
		case doctor.Error:
			result.Errors++
		case doctor.Warning:
			result.Warnings++
		}
	}
	if err := result.print(os.Stdout, c.JSON); err != nil {
		return err
	}
	if result.Errors > 0 {
		return fmt.Errorf("%s found; what to do stands behind each", plural(result.Errors, "error"))
	}
	return nil
}

func (e *doctorReport) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, e)
	}
	widest := 0
	for _, f := range e.Checks {
		widest = max(widest, len(f.Check))
	}
	var text strings.Builder
	for _, f := range e.Checks {
		fmt.Fprintf(&text, "%-8s %-*s  %s", f.Status, widest, f.Check, strings.TrimSuffix(f.Message, "."))
		if f.Fix != "" {
			text.WriteString(". " + f.Fix)
		}
		text.WriteByte('\n')
	}
	fmt.Fprintf(&text, "\n%s, %s, %d ok\n", plural(e.Errors, "error"), plural(e.Warnings, "warning"), len(e.Checks)-e.Errors-e.Warnings)
	_, err := io.WriteString(w, text.String())
	return err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

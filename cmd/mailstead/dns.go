// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/server"
)

type dnsCommand struct {
	File     configFile    `name:"config" help:"TOML file with any settings of mailstead serve." placeholder:"FILE"`
	Zone     bool          `help:"Print the records as text for a zone file, and nothing else." env:"-" xor:"form"`
	JSON     bool          `name:"json" help:"Print the result as JSON." env:"-" xor:"form"`
	Settings server.Config `embed:""`
}

// hostRecords is the JSON result.
type hostRecords struct {
	Host    string          `json:"host"`
	Records []domain.Record `json:"records"`
	Failed  int             `json:"failed"` // required records that are missing or wrong
}

func (c *dnsCommand) Run() error {
	ctx, stop := signalContext()
	defer stop()
	h, err := server.HostNames(ctx, c.Settings)
	if err != nil {
		return err
	}
	check := domain.HostCheck{Host: h}
	check.Records, err = h.Check(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	if c.Zone {
		_, err := io.WriteString(os.Stdout, check.Zone())
		return err
	}
	result := hostRecords{Host: h.Name, Records: check.Records, Failed: check.FailedCount()}
	if err := result.print(os.Stdout, c.JSON, h.Key == nil); err != nil {
		return err
	}
	if result.Failed > 0 {
		return fmt.Errorf("%s missing or wrong", plural(result.Failed, "required record"))
	}
	return nil
}

func (h *hostRecords) print(w io.Writer, asJSON, noKey bool) error {
	if asJSON {
		return printJSON(w, h)
	}
	var text strings.Builder
	for _, r := range h.Records {
		status := r.Status
		if !r.Required {
			status += ", optional"
		}
		value := r.Value
		if r.Priority != nil {
			value = fmt.Sprintf("%d %s", *r.Priority, value)
		}
		fmt.Fprintf(&text, "%s %s %s\n  %s. %s\n", r.Name, r.Type, value, status, r.Note)
		if r.Error != "" {
			fmt.Fprintf(&text, "  %s\n", printable(r.Error, 1000))
		}
		text.WriteByte('\n')
	}
	if noKey {
		text.WriteString("The DKIM key is generated when the service first starts. Run this command again then.\n\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

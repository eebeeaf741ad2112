// SPDX-License-Identifier: Apache-2.0

// Command mailstead hosts e-mail for people's own domains and sends e-mail for their applications.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/server"
)

// version is set by the build.
var version = "development"

type commands struct {
	Dev     devCommand     `cmd:"" help:"Start everything on this machine, to try it and to develop against."`
	Serve   serveCommand   `cmd:"" help:"Run the service."`
	Account accountCommand `cmd:"" help:"Accounts of the service's customers."`
	Domain  domainCommand  `cmd:"" help:"Domains of customers: suspend one, or end that."`
	Key     keyCommand     `cmd:"" help:"API keys."`
	User    userCommand    `cmd:"" help:"People who sign in to the dashboard."`
	Queue   queueCommand   `cmd:"" help:"Mail that waits: look, try again, hold, release, drop."`
	DNS     dnsCommand     `cmd:"" name:"dns" help:"Print and check the DNS records of the service itself, which its operator publishes."`
	Doctor  doctorCommand  `cmd:"" help:"Look at the service, running or stopped, and say what is wrong with it."`
	Listen  listenCommand  `cmd:"" help:"Forward events to a URL of this machine, signed like webhooks."`
	Migrate migrateCommand `cmd:"" help:"Copy a mailbox from another IMAP server."`
	Import  importCommand  `cmd:"" help:"Import mail from mbox, Maildir and .eml files."`
	Export  exportCommand  `cmd:"" help:"Write a mailbox to an mbox file or a Maildir."`
	Backup  backupCommand  `cmd:"" help:"Copy all that the service has into a folder, while it runs."`
	Restore restoreCommand `cmd:"" help:"Make a service of a backup, on SQLite or PostgreSQL."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// devData returns the data directory of `mailstead dev`: one of the user's.
func devData() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "mailstead-dev")
	}
	return filepath.Join(os.TempDir(), "mailstead-dev")
}

type versionCommand struct{}

func (versionCommand) Run() error {
	_, err := fmt.Println("mailstead", version)
	return err
}

func main() {
	notify.EnableLowPriority()
	runtime.LockOSThread() // the first thread's priority is shown as the process's: it must not run low-priority work
	server.Version = version
	parser := kong.Must(&commands{},
		kong.Name("mailstead"),
		kong.Description("E-mail for your own domains: mailboxes and a sending API in one program."),
		kong.DefaultEnvars("MAILSTEAD"),
		kong.Configuration(readConfig),
		kong.Vars{"dev_data": devData()},
		durationMapper(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ValueFormatter(flagHelp),
	)
	ctx, err := parser.Parse(os.Args[1:])
	if err == nil {
		err = ctx.Run()
	}
	if err != nil && !errors.Is(err, errStopped) {
		var flags []*kong.Flag
		if ctx != nil {
			flags = ctx.Flags()
		}
		fmt.Fprintf(os.Stderr, "mailstead: %s\n", explain(err, flags))
		os.Exit(1)
	}
}

// flagHelp returns a flag's line of help: description, default and environment variable.
func flagHelp(v *kong.Value) string {
	var more []string
	if v.HasDefault && v.Default != "" {
		more = append(more, "default "+v.Default)
	}
	for _, name := range v.Tag.Envs {
		more = append(more, "$"+name)
	}
	if len(more) == 0 {
		return v.Help
	}
	return strings.TrimSuffix(v.Help, ".") + " (" + strings.Join(more, "; ") + ")."
}

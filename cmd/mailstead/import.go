// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/mailfile"
)

type importCommand struct {
	Mailbox string   `required:"" help:"The mailbox that is imported into." placeholder:"ADDRESS"`
	Folder  string   `help:"Where to put what is in no folder, or in the inbox; other folders go below it. Otherwise everything goes where it belongs." placeholder:"FOLDER"`
	All     bool     `help:"Import also what its folder holds already."`
	Quoting string   `help:"Which lines of an mbox that begin with From were quoted by a >: auto, mboxrd, mboxo, or mboxcl2 for none." default:"auto" enum:"auto,mboxrd,mboxo,mboxcl2"`
	Paths   []string `arg:"" name:"path" help:"An mbox, an .eml, a tar, packed by gzip or not, a Maildir or a folder of any of these; - for standard input."`

	apiFlags `embed:"" set:"scopes=the scopes mailboxes.read and mailboxes.write"`
}

// Run imports the paths one by one.
func (c *importCommand) Run() error {
	ctx, stop := signalContext()
	defer stop()
	api, box, err := c.openMailbox(ctx, c.Mailbox)
	for _, path := range c.Paths {
		if err == nil {
			err = c.importPath(ctx, api, box, path)
		}
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; what was imported until then stays, and is left out when the same is imported again")
	}
	return err
}

func (c *importCommand) importPath(ctx context.Context, api *client.Client, box, path string) error {
	m := newByteProgress(os.Stdout, path, "read")
	in, total, err := c.open(path, m)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	m.expect(total)
	done, err := api.ImportMailbox(ctx, box, in, client.MailImportOptions{Folder: c.Folder, All: c.All, Quoting: c.Quoting})
	m.end()
	var p *client.Problem
	if errors.As(err, &p) && p.Import != nil {
		done = p.Import
	}
	if done != nil {
		for _, f := range done.Failures {
			fmt.Printf("not imported: %s: %s\n", printable(f.Location, 300), f.Detail)
		}
		if more := done.Failed - int64(len(done.Failures)); more > 0 {
			fmt.Printf("not imported: %d more\n", more)
		}
		fmt.Printf("%s: %d imported (%s), %d were there already, %d could not be imported\n", printable(path, 300), done.Imported, bytesize.Format(done.Bytes), done.Skipped, done.Failed)
	}
	return err
}

// open opens a file, or a directory as a tar. total is the number of bytes, 0 if unknown.
func (c *importCommand) open(path string, m *byteProgress) (in io.ReadCloser, total int64, err error) {
	if path == "-" {
		return progressReader{io.NopCloser(os.Stdin), m}, 0, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	if !info.IsDir() {
		return progressFile{progressReader{f, m}, f}, info.Size(), nil
	}
	if err := f.Close(); err != nil {
		return nil, 0, err
	}
	r, w := io.Pipe()
	go func() {
		err := mailfile.Pack(w, path, func(name string) {
			m.printLine("not imported: " + printable(name, 300) + ": it is a link, or went away")
		})
		w.CloseWithError(err)
	}()
	return progressReader{r, m}, 0, nil
}

// progressReader shows the progress of reading a stream.
type progressReader struct {
	io.ReadCloser
	progress *byteProgress
}

// Read implements io.Reader.
func (r progressReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.progress.add(n)
	return n, err
}

// progressFile can be read again if the request is repeated.
type progressFile struct {
	progressReader
	f *os.File
}

// Seek implements io.Seeker.
func (r progressFile) Seek(offset int64, whence int) (int64, error) {
	at, err := r.f.Seek(offset, whence)
	if err == nil {
		r.progress.set(at)
	}
	return at, err
}

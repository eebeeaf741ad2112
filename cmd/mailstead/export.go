// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/durable"
	"github.com/mailstead/mailstead/internal/mailfile"
)

type exportCommand struct {
	Mailbox string `required:"" help:"The mailbox that is exported." placeholder:"ADDRESS"`
	Format  string `help:"mbox for one file, maildir for a folder of Maildirs." default:"mbox" enum:"mbox,maildir"`
	Folder  string `help:"Only this folder of the mailbox." placeholder:"FOLDER"`
	Path    string `arg:"" help:"What to write, which must not be there: a file or, for maildir, a folder. One that ends in .tar is a tar of the Maildirs, in .gz or .tgz packed by gzip; - is standard output."`

	apiFlags `embed:"" set:"scopes=the scopes mailboxes.read and mail.read"`
}

// Run exports a mailbox to a file. The file gets its name only once it is on disk and complete,
// except for messages that the service can't read.
func (c *exportCommand) Run() error {
	ctx, stop := signalContext()
	defer stop()
	err := c.export(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted; nothing was written")
	}
	return err
}

func (c *exportCommand) export(ctx context.Context) error {
	c.Path = filepath.Clean(c.Path) // a/b/ means b in a
	if err := c.checkTarget(); err != nil {
		return err
	}
	api, box, err := c.openMailbox(ctx, c.Mailbox)
	if err != nil {
		return err
	}
	out, err := api.ExportMailbox(ctx, box, client.MailExportOptions{Format: c.Format, Folder: c.Folder})
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // only read
	said := os.Stdout
	if c.Path == "-" {
		said = os.Stderr
	}
	m := newByteProgress(said, c.Path, "written")
	if about, err := api.GetMailbox(ctx, box); err == nil && c.Folder == "" {
		m.expect(about.UsedBytes)
	}
	in := &exportReader{Reader: progressReader{out, m}}
	err = c.write(in)
	m.end()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(said, "%s: exported (%s)\n", printable(c.Path, 300), bytesize.Format(m.n))
	if in.missing != nil {
		return in.missing
	}
	return nil
}

// exportReader reads an export that may lack messages. It reports them after all data.
type exportReader struct {
	io.Reader
	missing *client.MissingMessagesError
}

// Read implements io.Reader.
func (c *exportReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if errors.As(err, &c.missing) {
		err = io.EOF
	}
	return n, err
}

// checkTarget rejects an existing path before the export starts.
func (c *exportCommand) checkTarget() error {
	if c.Path == "-" {
		return nil
	}
	_, err := os.Lstat(c.Path)
	if err == nil {
		return fmt.Errorf("%s is there already", printable(c.Path, 300))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *exportCommand) write(in io.Reader) error {
	packed := strings.HasSuffix(c.Path, ".gz") || strings.HasSuffix(c.Path, ".tgz")
	switch {
	case c.Path == "-":
		_, err := io.Copy(os.Stdout, in)
		return err
	case c.Format == "maildir" && !packed && !strings.HasSuffix(c.Path, ".tar"):
		return c.writeFolder(in)
	}
	return c.writeFile(in, packed)
}

// writeFile writes a file under a temporary name, and links it to its own name when it is complete.
// A link, unlike a rename, never replaces another file.
func (c *exportCommand) writeFile(in io.Reader, packed bool) error {
	f, err := os.CreateTemp(filepath.Dir(c.Path), "."+filepath.Base(c.Path)+".part-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it may have got its name
	if packed {
		z := gzip.NewWriter(f)
		if _, err = io.Copy(z, in); err == nil {
			err = z.Close()
		}
	} else {
		_, err = io.Copy(f, in)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), c.Path); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already", printable(c.Path, 300))
	} else if err != nil { // no support for links
		if err := c.checkTarget(); err != nil {
			return err
		}
		if err := os.Rename(f.Name(), c.Path); err != nil {
			return err
		}
	}
	return durable.SyncDir(filepath.Dir(c.Path))
}

// writeFolder does the same with a directory: a rename replaces only an empty one.
func (c *exportCommand) writeFolder(in io.Reader) error {
	dir, err := os.MkdirTemp(filepath.Dir(c.Path), "."+filepath.Base(c.Path)+".part-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it may have got its name
	if err := mailfile.Unpack(in, dir); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // to see how it ends
		return err
	}
	if err := c.checkTarget(); err != nil {
		return err
	}
	return durable.Rename(dir, c.Path)
}

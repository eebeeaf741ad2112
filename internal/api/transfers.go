// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/archive"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/transfer"
)

// transferRoutes bring mail in files into mailboxes and out of them, both in a
// stream.
func (a *API) transferRoutes(r *router) {
	in := operation{method: "POST", path: "/mailboxes/{id}/import", id: "importMailbox", scope: "mailboxes.write",
		takes:   "application/mbox, message/rfc822, application/x-tar, application/gzip, application/octet-stream",
		summary: "Import mail from a file", description: "Takes an mbox (`application/mbox`), a message (`message/rfc822`), a tar of mbox files, messages and Maildirs (`application/x-tar`), " +
			"or any of these packed by gzip (`application/gzip`); of `application/octet-stream` it finds out what it is. The file is read as a stream and may have any length, as long as it goes on coming. " +
			"Folders, flags, keywords and dates of receipt are kept as far as the file tells them: Status, X-Status, X-Keywords, X-Mozilla-Status and X-Gmail-Labels in an mbox, names and dates of files in a Maildir. " +
			"Messages have at most 50 MB.\n\n" +
			"A message that its folder held already when the import began is left out: one with the same bytes. So an import that broke off is simply sent again. " +
			"An error tells in `import` how far it came: what was imported until then stays. When the mailbox is full that is a 507 with the code `mailbox_full`."}
	describe[importMailInput, importedMailAnswer](r.doc, in)
	r.serve(in, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		out, err := a.importMail(w, req, p)
		if err != nil {
			return err
		}
		return in.answer(w, out)
	})
	out := operation{method: "GET", path: "/mailboxes/{id}/export", id: "exportMailbox", scope: "mail.read", media: "application/mbox, application/x-tar",
		summary: "Export a mailbox to a file", description: "As one mbox (`application/mbox`, of the kind mboxrd), with the flags of each message in Status, X-Status and X-Keywords, and its folder in X-Folder if it is of several; " +
			"or as a tar (`application/x-tar`) of Maildirs, which keeps empty folders too. Both are read back by the import as they were, byte by byte. " +
			"What the service itself wrote to whoever reads the mailbox is left out. Each folder is as it was when its turn came. An answer that breaks off was not whole: the connection is cut then, so that no program takes it for the end."}
	describe[exportMailInput, []byte](r.doc, out)
	r.serve(out, a.exportMail)
}

type importMailInput struct {
	one
	Folder  string `query:"folder" doc:"Where to put what is in no folder, or in the inbox; other folders of the file go below it. When left out, everything goes where it belongs: what another program calls Sent Items to Sent." example:"Old mail"`
	Dedup   bool   `query:"dedup" default:"true" doc:"Leave out what its folder held already."`
	Quoting string `query:"quoting" enum:"auto,mboxrd,mboxo,mboxcl2" default:"auto" doc:"Which lines of an mbox were quoted by a > because they begin with From: all (mboxrd), those without a > of their own (mboxo), or none (mboxcl2)."`
}

type importedMailAnswer struct {
	Imported int64               `json:"imported" doc:"Messages that were imported." example:"1204"`
	Skipped  int64               `json:"skipped" doc:"Messages that were there already, or that the file marks as deleted." example:"3"`
	Failed   int64               `json:"failed" doc:"Messages and files that could not be imported." example:"1"`
	Bytes    int64               `json:"bytes" doc:"Of the imported messages." example:"73400320"`
	Failures []importFaultAnswer `json:"failures" nullable:"false" doc:"What failed and why, at most 100 of them."`
}

type importFaultAnswer struct {
	Place  string `json:"place" doc:"Where it stands in the file." example:"Sent.mbox, message 17"`
	Reason string `json:"reason" doc:"Why, in words." example:"It is larger than the 50 MB that a message may have."`
}

func showImported(r transfer.Result) importedMailAnswer {
	out := importedMailAnswer{Imported: r.Imported, Skipped: r.Skipped, Failed: r.Failed, Bytes: r.Bytes, Failures: []importFaultAnswer{}}
	for _, f := range r.Failures {
		out.Failures = append(out.Failures, importFaultAnswer{f.Place, f.Why})
	}
	return out
}

func (a *API) importMail(w http.ResponseWriter, r *http.Request, p account.Principal) (importedMailAnswer, error) {
	var in importMailInput
	if err := bind(r, &in); err != nil {
		return importedMailAnswer{}, err
	}
	box, err := a.box(r.Context(), p, in.ID)
	if err != nil {
		return importedMailAnswer{}, err
	}
	kind, err := kindOf(r)
	if err != nil {
		return importedMailAnswer{}, err
	}
	order := transfer.In{Account: p.Account, Mailbox: box, Folder: in.Folder, All: !in.Dedup, Kind: kind}
	switch in.Quoting {
	case "auto":
	case string(archive.MboxRD), string(archive.MboxO), string(archive.MboxCL2):
		order.Quoting = archive.Quoting(in.Quoting)
	default:
		var bad fault.Fields
		bad.Add("quoting", "unknown_quoting", "Give auto, mboxrd, mboxo or mboxcl2.")
		return importedMailAnswer{}, bad.Err()
	}
	ctx, cancel := a.untilEnd(r.Context())
	defer cancel(nil)
	body := transfer.Arrive(w, r)
	defer context.AfterFunc(ctx, body.Stop)()
	done, err := a.Transfers.Import(ctx, order, body)
	body.End(err == nil)
	if err == nil {
		return showImported(done), nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return importedMailAnswer{}, a.brokenOff(r.Context(), arrival(err), done)
}

// kindOf reads what a body is said to be.
func kindOf(r *http.Request) (archive.Kind, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	encoding := r.Header.Get("Content-Encoding")
	if err == nil && (encoding == "" || strings.EqualFold(encoding, "identity")) {
		switch media {
		case "application/mbox":
			return archive.Mbox, nil
		case "message/rfc822":
			return archive.EML, nil
		case "application/x-tar", "application/tar":
			return archive.Tar, nil
		case "application/gzip", "application/x-gzip":
			return archive.Gzip, nil
		case "application/octet-stream":
			return archive.Detect, nil
		case "application/zip":
			return 0, newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Zip files can't be read as a stream: unpack it, and send the mail in it as a tar.")
		}
	}
	return 0, newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type",
		"Send the file as application/mbox, message/rfc822, application/x-tar, application/gzip or application/octet-stream.")
}

var errEnding = fault.New(fault.Unavailable, "service_ending", "The service restarts. Send the file again: what was imported is left out then.")

// untilEnd is a context that ends with the service, too.
func (a *API) untilEnd(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-a.streams.ended:
			cancel(errEnding)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// arrival tells trouble with a body as the client's.
func arrival(err error) error {
	var f *fault.Error
	switch {
	case errors.As(err, &f) && f.Code == folder.CodeBadName:
		return onField(err, "folder")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(http.StatusRequestTimeout, "body_too_slow", "The file stopped coming. Send it again: what was imported is left out then.")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return newProblem(http.StatusBadRequest, "body_ended_early", "The request's body ended early. Send it again: what was imported is left out then.")
	}
	return err
}

// brokenOff is an error with how far an import came.
func (a *API) brokenOff(ctx context.Context, err error, done transfer.Result) error {
	p := a.toProblem(ctx, err)
	if p.Code == mailbox.CodeFull {
		p.Detail = fmt.Sprintf("The mailbox is full. %d messages were imported, %d were there already. Make room, and send the file again.", done.Imported, done.Skipped)
	}
	shown := showImported(done)
	p.Import = &shown
	return p
}

type exportMailInput struct {
	one
	Format string `query:"format" enum:"mbox,maildir" default:"mbox" doc:"mbox, or maildir for a tar of Maildirs."`
	Folder string `query:"folder" doc:"Only this folder." example:"INBOX"`
}

// missingTrailer says of an export, behind it, what it lacks. To a client that
// asks for no trailers such an export is one that broke off.
const missingTrailer = "Mailstead-Missing"

func (a *API) exportMail(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	var in exportMailInput
	if err := bind(r, &in); err != nil {
		return err
	}
	box, err := a.box(r.Context(), p, in.ID)
	if err != nil {
		return err
	}
	m, err := a.Mailboxes.Get(r.Context(), p.Account, box)
	if err != nil {
		return err
	}
	order := transfer.Out{Account: p.Account, Mailbox: box, Format: in.Format, Folder: in.Folder}
	ctx, cancel := a.untilEnd(r.Context())
	defer cancel(nil)
	trailer := strings.Contains(r.Header.Get("TE"), "trailers") // RFC 9110 §6.5.1
	out := transfer.Leave(w, func() {
		if trailer {
			w.Header().Set("Trailer", missingTrailer)
		}
		w.Header().Set("Content-Type", order.Media())
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": m.Address + order.Ending()}))
	})
	err = a.Transfers.Export(ctx, order, &leavingAnswer{Writer: out, api: a, r: r})
	var missing *transfer.MissingError
	if errors.As(err, &missing) && trailer {
		w.Header().Set(missingTrailer, missing.Error())
		err = nil
	}
	if err == nil || errors.Is(err, http.ErrBodyNotAllowed) {
		out.End()
		return nil
	}
	if !out.Begun {
		if fault.Is(err, fault.Invalid) {
			err = onField(err, "format")
		}
		return err
	}
	// Half of the mail must not look whole.
	if r.Context().Err() == nil && !errors.Is(err, errEnding) && !errors.Is(err, os.ErrDeadlineExceeded) && !keyEnded(err) {
		a.Log.ErrorContext(ctx, "an export broke off", "request", requestID(r.Context()), "error", err)
	}
	_ = http.NewResponseController(w).Flush() // what was read is all given
	panic(http.ErrAbortHandler)
}

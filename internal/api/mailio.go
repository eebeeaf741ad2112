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
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailfile"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/web"
)

// mailIORoutes registers the streaming import and export of a mailbox.
func (a *API) mailIORoutes(r *router) {
	in := operation{method: "POST", path: "/mailboxes/{id}/import", id: "importMailbox", scope: "mailboxes.write",
		requestMedia: "application/mbox, message/rfc822, application/x-tar, application/gzip, application/octet-stream",
		summary:      "Import mail from a file", description: "Takes an mbox (`application/mbox`), a message (`message/rfc822`), a tar of mbox files, messages and Maildirs (`application/x-tar`), " +
			"or any of these packed by gzip (`application/gzip`); of `application/octet-stream` it finds out what it is. The file is read as a stream and may have any length, as long as it goes on coming. " +
			"Folders, flags, keywords and dates of receipt are kept as far as the file tells them: Status, X-Status, X-Keywords, X-Mozilla-Status and X-Gmail-Labels in an mbox, names and dates of files in a Maildir. " +
			"Messages have at most 50 MB.\n\n" +
			"A message that its folder held already when the import began is left out: one with the same bytes. So an import that broke off is simply sent again. " +
			"An error tells in `import` how far it came: what was imported until then stays. When the mailbox is full that is a 507 with the code `mailbox_full`."}
	describeOperation[importMailInput, mailImportResponse](r.doc, in)
	r.register(in, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		out, err := a.importMail(w, req, p)
		if err != nil {
			return err
		}
		return in.respond(w, out)
	})
	out := operation{method: "GET", path: "/mailboxes/{id}/export", id: "exportMailbox", scope: "mail.read", responseMedia: "application/mbox, application/x-tar",
		summary: "Export a mailbox to a file", description: "As one mbox (`application/mbox`, of the kind mboxrd), with the flags of each message in Status, X-Status and X-Keywords, and its folder in X-Folder if it is of several; " +
			"or as a tar (`application/x-tar`) of Maildirs, which keeps empty folders too. Both are read back by the import as they were, byte by byte. " +
			"What the service itself wrote to whoever reads the mailbox is left out. Each folder is as it was when its turn came. An answer that breaks off was not whole: the connection is cut then, so that no program takes it for the end."}
	describeOperation[exportMailInput, []byte](r.doc, out)
	r.register(out, a.exportMail)
}

type importMailInput struct {
	idParams
	Folder  string `query:"folder" doc:"Where to put what is in no folder, or in the inbox; other folders of the file go below it. When left out, everything goes where it belongs: what another program calls Sent Items to Sent." example:"Old mail"`
	Dedup   bool   `query:"dedup" default:"true" doc:"Leave out what its folder held already."`
	Quoting string `query:"quoting" enum:"auto,mboxrd,mboxo,mboxcl2" default:"auto" doc:"Which lines of an mbox were quoted by a > because they begin with From: all (mboxrd), those without a > of their own (mboxo), or none (mboxcl2)."`
}

type mailImportResponse struct {
	Imported int64                   `json:"imported" doc:"Messages that were imported." example:"1204"`
	Skipped  int64                   `json:"skipped" doc:"Messages that were there already, or that the file marks as deleted." example:"3"`
	Failed   int64                   `json:"failed" doc:"Messages and files that could not be imported." example:"1"`
	Bytes    int64                   `json:"bytes" doc:"Of the imported messages." example:"73400320"`
	Failures []importFailureResponse `json:"failures" doc:"What failed and why, at most 100 of them."`
}

type importFailureResponse struct {
	Location string `json:"location" doc:"Where it stands in the file." example:"Sent.mbox, message 17"`
	Detail   string `json:"detail" doc:"Why, in words." example:"It is larger than the 50 MB that a message may have."`
}

func newMailImportResponse(r mailio.ImportResult) mailImportResponse {
	out := mailImportResponse{Imported: r.Imported, Skipped: r.Skipped, Failed: r.Failed, Bytes: r.Bytes, Failures: []importFailureResponse{}}
	for _, f := range r.Failures {
		out.Failures = append(out.Failures, importFailureResponse{f.Location, f.Reason})
	}
	return out
}

func (a *API) importMail(w http.ResponseWriter, r *http.Request, p account.Principal) (mailImportResponse, error) {
	var in importMailInput
	if err := bind(r, &in); err != nil {
		return mailImportResponse{}, err
	}
	box, err := a.existingMailboxID(r.Context(), p, in.ID)
	if err != nil {
		return mailImportResponse{}, err
	}
	kind, err := mailFileKind(r)
	if err != nil {
		return mailImportResponse{}, err
	}
	order := mailio.ImportOptions{Account: p.Account, Mailbox: box, Folder: in.Folder, KeepDuplicates: !in.Dedup, Kind: kind}
	switch in.Quoting {
	case "auto":
	case string(mailfile.MboxRD), string(mailfile.MboxO), string(mailfile.MboxCL2):
		order.Quoting = mailfile.Quoting(in.Quoting)
	default:
		var bad fault.FieldErrors
		bad.Add("quoting", "unknown_quoting", "Give auto, mboxrd, mboxo or mboxcl2.")
		return mailImportResponse{}, bad.Err()
	}
	ctx, cancel := a.withShutdown(r.Context())
	defer cancel(nil)
	body := mailio.NewRequestBodyReader(w, r)
	defer context.AfterFunc(ctx, body.Stop)()
	done, err := a.MailIO.Import(ctx, order, body)
	body.PrepareResponse(err == nil)
	if err == nil {
		return newMailImportResponse(done), nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return mailImportResponse{}, a.partialImportProblem(r.Context(), importError(err), done)
}

// mailFileKind returns the file kind for the request's media type.
func mailFileKind(r *http.Request) (mailfile.Kind, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	encoding := r.Header.Get("Content-Encoding")
	if err == nil && (encoding == "" || strings.EqualFold(encoding, "identity")) {
		switch media {
		case "application/mbox":
			return mailfile.Mbox, nil
		case "message/rfc822":
			return mailfile.EML, nil
		case "application/x-tar", "application/tar":
			return mailfile.Tar, nil
		case "application/gzip", "application/x-gzip":
			return mailfile.Gzip, nil
		case "application/octet-stream":
			return mailfile.Detect, nil
		case "application/zip":
			return 0, newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Zip files can't be read as a stream: unpack it, and send the mail in it as a tar.")
		}
	}
	return 0, newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type",
		"Send the file as application/mbox, message/rfc822, application/x-tar, application/gzip or application/octet-stream.")
}

var errShutdown = fault.New(fault.Unavailable, "service_ending", "The service restarts. Send the file again: what was imported is left out then.")

// withShutdown returns a context that is also cancelled when the service shuts down.
func (a *API) withShutdown(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-a.streams.shutdown:
			cancel(errShutdown)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// importError reports an error of the request's body as the client's error.
func importError(err error) error {
	var f *fault.Error
	switch {
	case errors.As(err, &f) && f.Code == folder.CodeBadName:
		return asFieldFault(err, "folder")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(http.StatusRequestTimeout, "body_too_slow", "The file stopped coming. Send it again: what was imported is left out then.")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return newProblem(http.StatusBadRequest, "body_ended_early", "The request's body ended early. Send it again: what was imported is left out then.")
	}
	return err
}

// partialImportProblem converts an import's error and adds its progress.
func (a *API) partialImportProblem(ctx context.Context, err error, done mailio.ImportResult) error {
	p := a.toProblem(ctx, err)
	if p.Code == mailbox.CodeMailboxFull {
		p.Detail = fmt.Sprintf("The mailbox is full. %d messages were imported, %d were there already. Make room, and send the file again.", done.Imported, done.Skipped)
	}
	shown := newMailImportResponse(done)
	p.Import = &shown
	return p
}

type exportMailInput struct {
	idParams
	Format string `query:"format" enum:"mbox,maildir" default:"mbox" doc:"mbox, or maildir for a tar of Maildirs."`
	Folder string `query:"folder" doc:"Only this folder." example:"INBOX"`
}

// missingTrailer is the trailer that lists the messages missing from an export. For a client that
// doesn't accept trailers, an incomplete export breaks off.
const missingTrailer = "Mailstead-Missing"

func (a *API) exportMail(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	var in exportMailInput
	if err := bind(r, &in); err != nil {
		return err
	}
	box, err := a.existingMailboxID(r.Context(), p, in.ID)
	if err != nil {
		return err
	}
	m, err := a.Mailboxes.Get(r.Context(), p.Account, box)
	if err != nil {
		return err
	}
	order := mailio.ExportOptions{Account: p.Account, Mailbox: box, Format: in.Format, Folder: in.Folder}
	ctx, cancel := a.withShutdown(r.Context())
	defer cancel(nil)
	trailer := strings.Contains(r.Header.Get("TE"), "trailers") // RFC 9110 §6.5.1
	out := mailio.NewStreamWriter(w, func() {
		if trailer {
			w.Header().Set("Trailer", missingTrailer)
		}
		w.Header().Set("Content-Type", order.ContentType())
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": m.Address + order.Extension()}))
	})
	err = a.MailIO.Export(ctx, order, &revalidatingWriter{Writer: out, api: a, r: r})
	var missing *mailio.MissingError
	if errors.As(err, &missing) && trailer {
		w.Header().Set(missingTrailer, missing.Error())
		err = nil
	}
	if err == nil || errors.Is(err, http.ErrBodyNotAllowed) {
		out.Finish()
		return nil
	}
	if !out.Begun {
		if fault.Is(err, fault.Invalid) {
			err = asFieldFault(err, "format")
		}
		return err
	}
	web.AbortResponse(w, r, a.Log, err)
	return nil
}

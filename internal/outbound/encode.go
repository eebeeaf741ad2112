// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"io"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
)

// signFunc returns the header fields to put on top of a message: its signatures or its ARC seal.
type signFunc func(io.Reader) ([]byte, error)

// setContent sets the bytes that are sent. Most messages are sent as stored. A forwarded message
// may contain what a remote host need not accept: lines over 998 octets, or NUL. It is re-encoded,
// unless that would break a DKIM signature that counts. OutboundMessage.SevenBit is for hosts
// without 8BITMIME.
func (o *Messages) setContent(ctx context.Context, r *row, m *queue.OutboundMessage, b *blob.Blob, sign signFunc) error {
	if r.forwarder == 0 {
		head, err := o.signThrottled(ctx, sign, b)
		m.Head, m.Body, m.Size = head, blobOpener(b), int64(len(head))+r.size
		if m.EightBit {
			m.SevenBit = o.sevenBitFunc(r, m, b, sign)
		}
		return err
	}
	var scan message.Scanner
	head, err := o.signThrottled(ctx, func(in io.Reader) ([]byte, error) {
		tee := io.TeeReader(in, &scan)
		head, err := sign(tee)
		if err == nil {
			_, err = io.Copy(io.Discard, tee)
		}
		return head, err
	}, b)
	if err != nil {
		return err
	}
	m.Head, m.Body, m.Size = head, blobOpener(b), int64(len(head))+r.size
	index, header := scan.Finish(), scan.Header()
	breaks := mailauth.BreaksDKIM(header, o.Host)
	if !breaks && index.Has(message.LongLines|message.HasNUL) {
		_, err := o.reencode(ctx, r, m, b, index, sign)
		return err
	}
	// A returned report matters more than its signature: nobody would learn that it could not be
	// delivered.
	if breaks && !r.isReturnedReport() {
		return nil
	}
	if m.EightBit = m.EightBit || header.EightBit() && !r.utf8; m.EightBit {
		m.SevenBit = o.sevenBitFunc(r, m, b, sign)
	}
	return nil
}

// sevenBitFunc returns the function for queue.OutboundMessage.SevenBit.
func (o *Messages) sevenBitFunc(r *row, m *queue.OutboundMessage, b *blob.Blob, sign signFunc) func(context.Context) (*queue.OutboundMessage, error) {
	return func(ctx context.Context) (*queue.OutboundMessage, error) {
		index, err := indexParts(ctx, b)
		if err != nil {
			return nil, err
		}
		seven := *m
		seven.SevenBit = nil
		result, err := o.reencode(ctx, r, &seven, b, index, sign)
		if err == nil && (result.Needs8Bit || result.NeedsUTF8 && !seven.UTF8) {
			err = fault.New(fault.Denied, "needs_8bit", "A part of the message can't be encoded: it is signed, or no encoding is allowed there.")
		}
		return &seven, err
	}
}

// reencode makes m send the message with its parts re-encoded, and signed in that form. The parts
// are encoded on each read; the stored message doesn't change.
func (o *Messages) reencode(ctx context.Context, r *row, m *queue.OutboundMessage, b *blob.Blob, index *message.Structure, sign signFunc) (message.EncodeResult, error) {
	encode := func(w io.Writer, in io.ReaderAt, index *message.Structure) (message.EncodeResult, error) {
		return message.EncodeSevenBitNested(w, in, index, !r.utf8)
	}
	var result message.EncodeResult
	var size byteCounter
	head, err := o.signThrottled(ctx, func(io.Reader) ([]byte, error) {
		in, encoded, err := encodedReader(ctx, b, index, encode)
		if err != nil {
			return nil, err
		}
		defer in.Close() //nolint:errcheck // only read
		tee := io.TeeReader(in, &size)
		head, err := sign(tee)
		if err == nil {
			_, err = io.Copy(io.Discard, tee)
		}
		if err == nil {
			result = encoded()
		}
		return head, err
	}, b)
	if err != nil {
		return result, err
	}
	m.Head, m.Size, m.EightBit = head, int64(len(head))+int64(size), result.Needs8Bit
	m.Body = func(ctx context.Context) (io.ReadCloser, error) {
		// Don't retain the index: it may be large, and many messages stay loaded.
		index, err := indexParts(ctx, b)
		if err != nil {
			return nil, err
		}
		in, _, err := encodedReader(ctx, b, index, encode)
		return in, err
	}
	return result, nil
}

func indexParts(ctx context.Context, b *blob.Blob) (*message.Structure, error) {
	in, err := b.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	index, _, err := message.ScanReader(in.All())
	return index, err
}

// byteCounter counts the bytes that are written to it.
type byteCounter int64

// Write implements io.Writer.
func (c *byteCounter) Write(p []byte) (int, error) {
	*c += byteCounter(len(p))
	return len(p), nil
}

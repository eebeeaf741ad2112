// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"io"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// ServiceMessage is a message that the service wrote itself. Its bytes are stored.
type ServiceMessage struct {
	Blob   *blob.Blob // without a row
	Header message.Header
	Index  *message.Structure
}

// StoreServiceMessage stores the message that write writes.
func (i *Service) StoreServiceMessage(ctx context.Context, write func(io.Writer) error) (*ServiceMessage, error) {
	w := i.Blobs.Create(ctx)
	defer w.Abort()
	var scan message.Scanner
	if err := write(io.MultiWriter(w, &scan)); err != nil {
		return nil, err
	}
	b, err := w.Finish()
	if err != nil {
		return nil, err
	}
	index := scan.Finish()
	return &ServiceMessage{Blob: b, Header: scan.Header(), Index: index}, nil
}

// FileServiceMessage files a message from the null sender to rcpt in a mailbox. The jobs are part
// of its commit.
func (i *Service) FileServiceMessage(ctx context.Context, m *ServiceMessage, to mailbox.Recipient, rcpt string, jobs ...*db.Mutation) error {
	in, err := i.buildCopy(ctx, m.spooled(i.db.NewID()), to, nil, "", rcpt)
	if err != nil {
		return err
	}
	in.Jobs = jobs
	_, err = i.Folders.Deliver(ctx, in)
	return err
}

func (m *ServiceMessage) spooled(arrival db.ID) *spooledMessage {
	return &spooledMessage{blob: m.Blob, header: m.Header, index: m.Index, arrivalID: arrival, threads: map[db.ID]string{}}
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"compress/flate"
	"io"
	"sync"
)

// DeflaterPool lends compressors, which take most of a megabyte each, to the
// connections that are answering. The zero value is ready; share one among all.
type DeflaterPool struct{ pool sync.Pool }

type compressor struct {
	*flate.Writer
	out *bufio.Writer // flate writes a few bytes at a time
}

func (d *DeflaterPool) get(to io.Writer) *compressor {
	c, ok := d.pool.Get().(*compressor)
	if !ok {
		c = &compressor{out: bufio.NewWriterSize(to, bufferSize/4)}
		// The fastest level halves what IMAP says (RFC 4978 §4); it is a valid one.
		c.Writer, _ = flate.NewWriter(c.out, flate.BestSpeed)
		return c
	}
	c.out.Reset(to)
	c.Reset(c.out)
	return c
}

// Deflater compresses the answers to one client (RFC 4978). It holds a
// compressor only from a Write to the next Flush, which leaves the client with
// all that was written: then the next answer begins without a dictionary, and
// an idle connection costs nothing.
type Deflater struct {
	to         io.Writer
	pool       *DeflaterPool
	compressor *compressor
}

// NewDeflater returns a Deflater to a stream.
func NewDeflater(to io.Writer, deflaters *DeflaterPool) *Deflater {
	return &Deflater{to: to, pool: deflaters}
}

// Write compresses p.
func (d *Deflater) Write(p []byte) (int, error) {
	if d.compressor == nil {
		d.compressor = d.pool.get(d.to)
	}
	return d.compressor.Write(p)
}

// Flush sends what was written, if anything was.
func (d *Deflater) Flush() error {
	if d.compressor == nil {
		return nil
	}
	err := d.compressor.Flush()
	if err == nil {
		err = d.compressor.out.Flush()
	}
	d.pool.pool.Put(d.compressor)
	d.compressor = nil
	return err
}

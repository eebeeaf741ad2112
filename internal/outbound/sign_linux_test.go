// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/notify"
)

// Accepting mail doesn't wait for a signature to finish.
func TestSigningGivesWay(t *testing.T) {
	nice := func() int {
		raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0) // the system call gives 20 - nice
		if err != nil {
			t.Error(err)
		}
		return 20 - raw
	}
	notify.EnableLowPriority()
	runtime.LockOSThread()
	own := nice()
	runtime.UnlockOSThread()
	there := 0
	o := &Messages{Now: time.Now}
	if _, err := o.signThrottled(t.Context(), func(io.Reader) ([]byte, error) { there = nice(); return nil, nil }, &blob.Blob{}); err != nil {
		t.Fatal(err)
	}
	if there <= own && own < 19 {
		t.Errorf("a message is signed at nice %d, the service is at %d", there, own)
	}
}

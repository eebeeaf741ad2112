// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/fault"
)

// If reading a file fails before the first byte, the response is a problem; later the connection is
// cut, so that half a file doesn't look complete.
func TestFileBreaksOff(t *testing.T) {
	broken := errors.New("the disk is dead")
	answer := func(body io.Reader) (w *httptest.ResponseRecorder, aborted bool, err error) {
		a, w := quiet(), httptest.NewRecorder()
		defer func() { aborted = recover() == http.ErrAbortHandler }() //nolint:errorlint // a sentinel value
		err = a.writeFile(w, httptest.NewRequest("GET", "/", nil), &fileResponse{name: "a", media: "text/plain", size: -1, body: body})
		return w, false, err
	}
	if w, aborted, err := answer(iotest.ErrReader(broken)); aborted || !errors.Is(err, broken) || len(w.Header()) > 0 {
		t.Errorf("at once: %v, %v, %v", aborted, err, w.Header())
	}
	if _, aborted, _ := answer(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))); !aborted {
		t.Error("half a file was ended as a whole one")
	}
	if w, aborted, err := answer(strings.NewReader("")); aborted || err != nil || w.Code != 200 || w.Header().Get("Content-Disposition") == "" {
		t.Errorf("an empty file: %d %v, %v", w.Code, w.Header(), err)
	}
}

// Outside the sandbox its endpoints don't exist.
func TestNoSandbox(t *testing.T) {
	a, p := quiet(), account.Principal{}
	_, list := a.listCaptured(t.Context(), p, &pageParams{})
	_, get := a.getCaptured(t.Context(), p, &idParams{})
	_, raw := a.getCapturedRaw(t.Context(), p, &idParams{})
	_, empty := a.clearCaptured(t.Context(), p, nil)
	_, simulate := a.simulate(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), p)
	for _, err := range []error{list, get, raw, empty, simulate} {
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.NotFound || f.Code != "sandbox_only" {
			t.Errorf("got %v", err)
		}
	}
}

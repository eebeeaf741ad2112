// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Password guesses are limited, even if all arrive at once.
func TestGuessesAtOnce(t *testing.T) {
	s := servertest.Start(t)
	s.Dashboard.Unfriend()
	var verified atomic.Int64
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			a, err := http.PostForm(s.Dev.BaseURL+"/sign-in", url.Values{"email": {s.Dev.Dashboard.Email}, "password": {fmt.Sprint("Wrong-Horse-", i)}})
			if err != nil {
				t.Error(err)
				return
			}
			if a.StatusCode == http.StatusUnauthorized {
				verified.Add(1)
			}
			_ = a.Body.Close()
		})
	}
	all.Wait()
	if n := verified.Load(); n != 10 {
		t.Errorf("%d of 100 guesses were answered", n)
	}
}

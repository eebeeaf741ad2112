// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// noop does nothing: changes are reported after every command.
func (s *session) noop() (wire.Code, error) { return "", nil }

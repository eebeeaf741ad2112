// SPDX-License-Identifier: Apache-2.0

package server

// SendByMX makes a sandbox with a smart host send to the hosts that MX records name.
// Call it before there is mail.
func (s *Server) SendByMX() { s.router.SmartHost = nil }

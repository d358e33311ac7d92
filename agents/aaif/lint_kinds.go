package aaif

// For the other kinds of document the linter checks little but the formats of
// values.

func (l *linter) state(s *State) {
	l.version(s.Version)
	l.id("/state_id", s.StateID)
	l.id("/agent_id", s.AgentID)
	l.id("/run_id", s.RunID)
	l.time("/checkpoint_at", s.CheckpointAt)
	for i, m := range s.Conversation {
		l.time(child("/conversation", i)+"/timestamp", m.Timestamp)
	}
	for i, m := range s.MemorySnapshot {
		l.time(child("/memory_snapshot", i)+"/captured_at", m.CapturedAt)
	}
	for i, c := range s.PendingToolCalls {
		l.time(child("/pending_tool_calls", i)+"/submitted_at", c.SubmittedAt)
	}
	for i, sub := range s.SubagentStates {
		l.id(child("/subagent_states", i)+"/agent_id", sub.AgentID)
		l.id(child("/subagent_states", i)+"/state_id", sub.StateID)
	}
	if r := s.ApprovalRequest; r != nil {
		l.time("/approval_request/requested_at", r.RequestedAt)
		l.time("/approval_request/timeout_at", r.TimeoutAt)
		if s.Status != RunAwaitingApproval {
			l.warn("/approval_request", RuleIgnoredField, "", "no approval is asked for: the status is %s", s.Status)
		}
	} else if s.Status == RunAwaitingApproval {
		l.warn("", RuleIncomplete, "give approval_request", "the run waits for an approval that it does not describe")
	}
	if e := s.Error; e != nil {
		l.time("/error/occurred_at", e.OccurredAt)
		if e.StackTrace != "" {
			l.warn("/error/stack_trace", RuleFormat, "strip it before the checkpoint leaves this platform", "a stack trace shows how the platform is built")
		}
	} else if s.Status == RunFailed {
		l.warn("", RuleIncomplete, "give error", "the run failed and does not say why")
	}
}

func (l *linter) manifest(m *Manifest) {
	l.version(m.Version)
	p := &m.Platform
	l.uri("/platform/manifest_url", p.ManifestURL)
	l.time("/platform/manifest_issued_at", p.IssuedAt)
	l.time("/platform/manifest_expires_at", p.ExpiresAt)
	if p.IntakeEndpoint != nil {
		l.uri("/platform/intake_endpoint/url", p.IntakeEndpoint.URL)
	}
}

func (l *linter) report(r *Report) {
	l.time("/report/generated_at", r.Report.GeneratedAt)
	l.time("/report/expires_at", r.Report.ExpiresAt)
	l.uri("/report/report_url", r.Report.ReportURL)
	l.uri("/platform/manifest_url", r.Platform.ManifestURL)
	l.uri("/platform/homepage", r.Platform.Homepage)
	for i, c := range r.Claims {
		at := child("/claims", i) + "/test_suite"
		l.time(at+"/ran_at", c.TestSuite.RanAt)
		l.uri(at+"/log_url", c.TestSuite.LogURL)
		if c.TestSuite.Passed.Float64() > c.TestSuite.Total.Float64() {
			l.warn(at, RuleFormat, "", "more tests passed than there are")
		}
	}
}

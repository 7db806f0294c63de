package engine

// Preempting is what a waiting job does about the running ones.
type Preempting string

// What it does.
const (
	PreemptsNever       Preempting = "never"     // nobody is stopped for another without being asked
	PreemptsNotItsClass Preempting = "class"     // its class has nobody stopped
	PreemptsNotReady    Preempting = "not-ready" // it could not start anyway, for a reason of its own
	PreemptsNotDue      Preempting = "not-due"   // it is expected to start soon enough; see Due
	PreemptsEnough      Preempting = "enough"    // as many were stopped in the last hour as may be
	PreemptsNobody      Preempting = "nobody"    // nobody's end, of those who may be stopped, would make room
	PreemptsNow         Preempting = "now"       // jobs are being stopped for it
)

// Spared is why a running job is not stopped for a waiting one; empty when it could be.
type Spared string

// Why it is not.
const (
	SparedStopping  Spared = "stopping"  // it is on its way out
	SparedStarting  Spared = "starting"  // its program has not begun
	SparedClass     Spared = "class"     // its class is not lower
	SparedSite      Spared = "site"      // jobs of its class do not give way on this machine
	SparedProtected Spared = "protected" // it was stopped for others so often already
	SparedYoung     Spared = "young"     // it has just begun; see Until
	SparedLoss      Spared = "loss"      // more of its work would be lost than may be
)

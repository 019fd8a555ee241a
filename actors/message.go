package actors

// message is the input of a core. The interface is closed: only the types below implement it. Each new type of message
// adds a line below.
type message interface{ isMessage() }

// Messages between actors. messages.go explains each.
func (AbortRequested) isMessage()       {}
func (ActivationChecked) isMessage()    {}
func (ActivationComputed) isMessage()   {}
func (ActivationFetched) isMessage()    {}
func (ActivationLeft) isMessage()       {}
func (ActivationPassed) isMessage()     {}
func (ActivationSlotFreed) isMessage()  {}
func (ActivationSpilled) isMessage()    {}
func (BatchFetched) isMessage()         {}
func (BatchReady) isMessage()           {}
func (BatchSlotFreed) isMessage()       {}
func (BatchWanted) isMessage()          {}
func (EvalReport) isMessage()           {}
func (ExchangeBufferFreed) isMessage()  {}
func (Failed) isMessage()               {}
func (GradBufferFreed) isMessage()      {}
func (GradComputed) isMessage()         {}
func (GradExchanged) isMessage()        {}
func (GradLanded) isMessage()           {}
func (GradMeasured) isMessage()         {}
func (GradNotFinite) isMessage()        {}
func (GradSumFetched) isMessage()       {}
func (GradSumWanted) isMessage()        {}
func (GradSummed) isMessage()           {}
func (GradsWanted) isMessage()          {}
func (LaunchPassed) isMessage()         {}
func (LayerFetched) isMessage()         {}
func (LayerSaved) isMessage()           {}
func (LayerUpdated) isMessage()         {}
func (LoadAgreed) isMessage()           {}
func (LossComputed) isMessage()         {}
func (LossLanded) isMessage()           {}
func (MatrixApplied) isMessage()        {}
func (MatrixOrthogonalized) isMessage() {}
func (MatrixPrepared) isMessage()       {}
func (PartLanded) isMessage()           {}
func (PassPlanned) isMessage()          {}
func (RoutingComputed) isMessage()      {}
func (RoutingLanded) isMessage()        {}
func (SaveDone) isMessage()             {}
func (SaveRequested) isMessage()        {}
func (ShareUpdated) isMessage()         {}
func (SlabFreed) isMessage()            {}
func (SlotFreed) isMessage()            {}
func (SlotOffered) isMessage()          {}
func (StateFetched) isMessage()         {}
func (StateFlushed) isMessage()         {}
func (StateUpdated) isMessage()         {}
func (StatesWanted) isMessage()         {}
func (StepAbortRequested) isMessage()   {}
func (StepClosed) isMessage()           {}
func (StepDropped) isMessage()          {}
func (StepReport) isMessage()           {}
func (StepReported) isMessage()         {}
func (StepUpdated) isMessage()          {}
func (StopRequested) isMessage()        {}

// Messages that an actor sends itself when one of its works is done, and messages that begin and end a run.
func (batchPacked) isMessage()   {}
func (begin) isMessage()         {}
func (exchanged) isMessage()     {}
func (flushReports) isMessage()  {}
func (gathered) isMessage()      {}
func (gradRead) isMessage()      {}
func (gradWritten) isMessage()   {}
func (layerWritten) isMessage()  {}
func (measured) isMessage()      {}
func (merged) isMessage()        {}
func (normAgreed) isMessage()    {}
func (paramsRead) isMessage()    {}
func (passAgreed) isMessage()    {}
func (reported) isMessage()      {}
func (rowsGathered) isMessage()  {}
func (saveCommitted) isMessage() {}
func (saveOpened) isMessage()    {}
func (slotIdle) isMessage()      {}
func (stateRead) isMessage()     {}
func (stateWritten) isMessage()  {}
func (summed) isMessage()        {}
func (unitsUpdated) isMessage()  {}
func (updateDone) isMessage()    {}

/** How much a run does: whether answers are right, the usual three minutes, or everything. */
export type Mode = 'smoke' | 'quick' | 'full'

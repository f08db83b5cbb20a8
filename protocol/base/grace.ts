/** How long a component waits when it closes. */
import { checkDuration, MAX_TIMER_MS } from './durations.ts'
import { checkMembers, type Members } from './members.ts'

export interface GraceOptions {
  readonly graceMs?: number | undefined
}

const MEMBERS: Members<GraceOptions> = { graceMs: 'number' }

/** Throws a TypeError for another member, such as `grace`, which would mean the default, and for a time that is out of range. */
export function graceOf(options: GraceOptions, whenAbsent: number, mostMs = MAX_TIMER_MS): number {
  checkMembers('', options, MEMBERS)
  return checkDuration('graceMs', options.graceMs ?? whenAbsent, 0, mostMs)
}

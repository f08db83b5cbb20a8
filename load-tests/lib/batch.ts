/**
 * Generators, relay and upstream run under SCHED_BATCH (sched(7)): when one of them wakes, the process on the core keeps it to the
 * end of its time slice. In a deployment they would be on other machines and interrupt nobody. On the same two cores, they would
 * interrupt what is measured in the middle of its work, and more often the more it does at a stretch.
 */
import { spawnSync } from 'node:child_process'

const CHRT = ['chrt', '--batch', '0'] as const

/** Whether this system has the policy, and the program that sets it (util-linux). */
export const hasBatch: boolean = spawnSync(CHRT[0], [...CHRT.slice(1), 'true']).status === 0

/** The command line that runs `command` under that policy, or `command` itself if that is not possible. */
export function asBatch(command: string, args: readonly string[]): [command: string, ...args: string[]] {
  return hasBatch ? [...CHRT, command, ...args] : [command, ...args]
}

/**
 * Generators, relay and upstream run under SCHED_BATCH (sched(7)): when one of them wakes, whoever has the core keeps it to the end
 * of its turn. In a deployment they are on other machines and interrupt nobody; on the same two cores they would stop what is
 * measured in the middle of its work, and the more so the more it does in one go.
 */
import { spawnSync } from 'node:child_process'

const CHRT = ['chrt', '--batch', '0'] as const

/** Whether this system has the policy, and the program that sets it (util-linux). */
export const hasBatch: boolean = spawnSync(CHRT[0], [...CHRT.slice(1), 'true']).status === 0

/** The command line that runs `command` so; itself where that cannot be. */
export function asBatch(command: string, args: readonly string[]): [command: string, ...args: string[]] {
  return hasBatch ? [...CHRT, command, ...args] : [command, ...args]
}

/** CPU time of processes, from the operating system's own accounting. */
import { readdirSync, readFileSync } from 'node:fs'

/** Length of a clock tick in `/proc/<pid>/stat`; 100 Hz on every Linux that Node runs on. */
const TICK_MS = 10

/** User and system time of a process and of the children it has waited for, in ms (Linux only). */
function ownCpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  // The second field, the name, may hold spaces; the fields behind its last parenthesis do not.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS
}

/** The live descendants of `pid`, itself included. */
export function processTree(pid: number): number[] {
  const parents = new Map<number, number[]>()
  for (const entry of readdirSync('/proc')) {
    const child = Number(entry)
    if (!Number.isInteger(child)) continue
    try {
      const stat = readFileSync(`/proc/${child}/stat`, 'latin1')
      const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
      const siblings = parents.get(parent)
      if (siblings) siblings.push(child)
      else parents.set(parent, [child])
    } catch {
      // It ended while we looked.
    }
  }
  const tree = [pid]
  for (let i = 0; i < tree.length; i++) tree.push(...(parents.get(tree[i]!) ?? []))
  return tree
}

/** CPU ms used so far by the processes and all their live descendants. */
export function cpuMs(pids: readonly number[]): number {
  let sum = 0
  for (const pid of pids) for (const each of processTree(pid)) sum += ownCpuMs(each)
  return sum
}

/** Resident set size in bytes of the processes and all their live descendants. */
export function rssBytes(pids: readonly number[]): number {
  let sum = 0
  for (const pid of pids)
    for (const each of processTree(pid)) {
      const pages = Number(readFileSync(`/proc/${each}/statm`, 'latin1').split(' ')[1])
      sum += pages * 4096
    }
  return sum
}

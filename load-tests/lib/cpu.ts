/** CPU time and memory of processes, from the operating system's own accounting (Linux). */
import { readdirSync, readFileSync } from 'node:fs'

/** Length of a clock tick in `/proc/<pid>/stat`; 100 Hz on every Linux that Node runs on. */
const TICK_MS = 10

/** The fields of `/proc/<pid>/stat` from the third on. The second, the name, may hold spaces and parentheses. */
function statFields(pid: number | 'self'): string[] {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
}

/** User and system time of one process, in ms. 0 once the process is gone. */
function ownCpuMs(pid: number): number {
  try {
    const fields = statFields(pid)
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS
  } catch {
    return 0
  }
}

/** User and system time of the children that this process has started and waited for, in ms. */
export function endedChildrenCpuMs(): number {
  const fields = statFields('self')
  return (Number(fields[13]) + Number(fields[14])) * TICK_MS
}

/** The live descendants of `pid`, itself included. */
export function processTree(pid: number): number[] {
  const parents = new Map<number, number[]>()
  for (const entry of readdirSync('/proc')) {
    const child = Number(entry)
    if (!Number.isInteger(child)) continue
    try {
      const parent = Number(statFields(child)[1])
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
  return pids.flatMap(processTree).reduce((sum, pid) => sum + ownCpuMs(pid), 0)
}

/** Resident set size in bytes of the processes and all their live descendants. */
export function rssBytes(pids: readonly number[]): number {
  let sum = 0
  for (const pid of pids.flatMap(processTree)) {
    try {
      sum += Number(readFileSync(`/proc/${pid}/statm`, 'latin1').split(' ')[1]) * 4096
    } catch {
      // It ended while we looked.
    }
  }
  return sum
}

/** Open files and sockets of the processes and all their live descendants. */
export function handleCount(pids: readonly number[]): number {
  let sum = 0
  for (const pid of pids.flatMap(processTree)) {
    try {
      sum += readdirSync(`/proc/${pid}/fd`).length
    } catch {
      // It ended while we looked.
    }
  }
  return sum
}

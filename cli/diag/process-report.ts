/** What Node tells of this process, by a list of what may be told: neither variables, arguments, paths nor addresses. */
import { availableParallelism, totalmem } from 'node:os'
import { getHeapStatistics } from 'node:v8'

interface Report {
  readonly header?: Readonly<Record<string, unknown>>
  readonly userLimits?: unknown
}

const MAX_HANDLES = 500
const HEADER = [
  'dumpEventTime',
  'nodejsVersion',
  'wordSize',
  'arch',
  'platform',
  'componentVersions',
  'release',
] as const
const SYSTEM = ['osName', 'osRelease', 'osVersion', 'osMachine', 'glibcVersionRuntime'] as const

export function processReport(): { report: object; limits: object } {
  const { header = {}, userLimits } = tellsAll() ? readReport() : {}
  const handles = Map.groupBy(process.getActiveResourcesInfo(), type => type)
  return {
    report: {
      header: Object.fromEntries([...HEADER, ...SYSTEM].map(name => [name, header[name]])),
      heap: getHeapStatistics(),
      resourceUsage: process.resourceUsage(),
      handles: Object.fromEntries([...handles].map(([type, all]) => [type, all.length])),
    },
    limits: {
      cpus: availableParallelism(),
      memoryBytes: totalmem(),
      containerMemoryBytes: containerMemory(),
      heapLimitBytes: getHeapStatistics().heap_size_limit,
      threadPool: Number(process.env.UV_THREADPOOL_SIZE ?? 4),
      user: userLimits,
    },
  }
}

/** Node looks at each handle, and all else waits meanwhile: 100 ms with 3,000 of them. */
function tellsAll(): boolean {
  return process.getActiveResourcesInfo().length <= MAX_HANDLES
}

/** Undefined outside of a container, for which Node says 0 or a number that no machine has. */
function containerMemory(): number | undefined {
  const bytes = process.constrainedMemory()
  return bytes > 0 && bytes < totalmem() ? bytes : undefined
}

/** Without what asks the resolver for the name of each peer, which would hold up the process. */
function readReport(): Report {
  // The types of Node lack `excludeNetwork`.
  const report: NodeJS.ProcessReport & { excludeNetwork?: boolean } = process.report
  const { excludeNetwork, excludeEnv } = report
  try {
    Object.assign(report, { excludeNetwork: true, excludeEnv: true })
    return report.getReport() as Report
  } finally {
    Object.assign(report, { excludeNetwork, excludeEnv })
  }
}

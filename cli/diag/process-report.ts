/** The parts of Node's process report that may be shared: no variables, arguments, paths or addresses. */
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
  const { header = {}, userLimits } = isQuickToWrite() ? readReport() : {}
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

/** Node visits each handle and blocks meanwhile, for 100 ms with 3,000 of them. */
function isQuickToWrite(): boolean {
  return process.getActiveResourcesInfo().length <= MAX_HANDLES
}

/** Undefined outside a container, where Node reports 0 or an impossible number. */
function containerMemory(): number | undefined {
  const bytes = process.constrainedMemory()
  return bytes > 0 && bytes < totalmem() ? bytes : undefined
}

/** Excludes network details, since Node would look up the name of each peer and block the process. */
function readReport(): Report {
  // Node's type definitions lack `excludeNetwork`.
  const report: NodeJS.ProcessReport & { excludeNetwork?: boolean } = process.report
  const { excludeNetwork, excludeEnv } = report
  try {
    Object.assign(report, { excludeNetwork: true, excludeEnv: true })
    return report.getReport() as Report
  } finally {
    Object.assign(report, { excludeNetwork, excludeEnv })
  }
}

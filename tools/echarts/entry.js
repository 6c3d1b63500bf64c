import * as echarts from 'echarts/core';
import { BarChart, TreemapChart, HeatmapChart, LineChart } from 'echarts/charts';
import { GridComponent, TooltipComponent, LegendComponent, VisualMapComponent, AriaComponent, DataZoomInsideComponent } from 'echarts/components';
import { SVGRenderer } from 'echarts/renderers';
echarts.use([BarChart, TreemapChart, HeatmapChart, LineChart, GridComponent, TooltipComponent, LegendComponent, VisualMapComponent, AriaComponent, DataZoomInsideComponent, SVGRenderer]);
window.echarts = { init: echarts.init };

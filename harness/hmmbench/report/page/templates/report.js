"use strict";
(function () {
  var out = document.getElementById("cell");
  var table = document.querySelector("table.heat");
  function tell(event) {
    var cell = event.target.closest("td[data-t]");
    if (cell && out) { out.textContent = cell.dataset.t; }
  }
  if (table) {
    table.addEventListener("mouseover", tell);
    table.addEventListener("click", tell);
  }
  document.querySelectorAll(".cmd button").forEach(function (button) {
    button.addEventListener("click", function () {
      var code = button.parentNode.querySelector("code");
      var range = document.createRange();
      range.selectNodeContents(code);
      var selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      if (navigator.clipboard) {
        navigator.clipboard.writeText(code.textContent).then(function () {
          button.textContent = "Copied";
        }, function () { button.textContent = "Selected"; });
      } else {
        button.textContent = "Selected";
      }
    });
  });
})();
